"""AST to canonical text: `hybridc fmt`, `Model.to_spec`, and the snippets in emitted docstrings."""

from __future__ import annotations

from hybridc.frontend import ast

WIDTH = 100

_OR, _AND, _NOT, _COMPARE, _RANGE, _SUM, _PRODUCT, _UNARY, _ATOM = range(4, 13)
_TERNARY, _PARALLEL, _PIPE, _SEQUENCE = range(4)
_BINARY = {"or": _OR, "and": _AND} | dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), _COMPARE) | {
    "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT,
}  # fmt: skip


def print_expr(expr: ast.Expr) -> str:
    """An expression on one line."""
    return _expr(expr, _TERNARY)


def _level(expr: ast.Expr) -> int:
    match expr:
        case ast.Conditional():
            return _TERNARY
        case ast.Parallel():
            return _PARALLEL
        case ast.Pipe():
            return _PIPE
        case ast.Sequence():
            return _SEQUENCE
        case ast.Binary():
            return _BINARY[expr.op]
        case ast.Unary():
            return _NOT if expr.op == "not" else _UNARY
        case ast.Range():
            return _RANGE
        case ast.Num() if expr.value < 0:
            return _UNARY
        case _:
            return _ATOM


def _expr(expr: ast.Expr, at: int) -> str:
    text = _bare(expr)
    return text if _level(expr) >= at else f"({text})"


def number(node: ast.Num) -> str:
    """The author's spelling, or the shortest one."""
    if node.text:
        return node.text
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    from hybridc.ir.emit import lit

    return lit(float(value))


def quote(text: str) -> str:
    """A string as the language writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _bare(expr: ast.Expr) -> str:
    match expr:
        case ast.Num():
            return number(expr)
        case ast.Str():
            return quote(expr.value)
        case ast.Bool():
            return "true" if expr.value else "false"
        case ast.Nil():
            return "none"
        case ast.Name():
            return expr.id
        case ast.Call():
            return f"{expr.func}({', '.join(_arguments(expr))})"
        case ast.Label():
            return f"{expr.name}: {_expr(expr.value, _ATOM)}"
        case ast.Conditional():
            then, test = (_expr(e, _PARALLEL) for e in (expr.then, expr.test))
            return f"{then} if {test} else {_expr(expr.other, _TERNARY)}"
        case ast.Parallel():
            return " | ".join(_expr(b, _PIPE) for b in expr.branches)
        case ast.Pipe():
            return " >> ".join(_expr(s, _SEQUENCE) for s in expr.stages)
        case ast.Sequence():
            return " ".join([_expr(expr.items[0], _PRODUCT), *(_item(i) for i in expr.items[1:])])
        case ast.Binary():
            return _binary(expr)
        case ast.Unary():
            return f"not {_expr(expr.operand, _NOT)}" if expr.op == "not" else f"-{_expr(expr.operand, _UNARY)}"
        case ast.Range():
            return f"{_expr(expr.start, _SUM)}..{_expr(expr.stop, _SUM)}"
        case ast.TupleExpr():
            inner = ", ".join(map(print_expr, expr.items))
            return f"({inner},)" if len(expr.items) == 1 else f"({inner})"
        case ast.ListExpr():
            return f"[{', '.join(map(print_expr, expr.items))}]"
        case ast.Comprehension():
            condition = f" if {_expr(expr.condition, _PARALLEL)}" if expr.condition is not None else ""
            iterable = _expr(expr.iterable, _PARALLEL)
            return f"[{print_expr(expr.element)} for {expr.var} in {iterable}{condition}]"


def _item(expr: ast.Expr) -> str:
    """An item of a sequence behind the first: no sign may stand in front, since it would subtract."""
    first = expr
    while isinstance(first, ast.Binary):
        first = first.left
    signed = isinstance(first, ast.Unary) or (isinstance(first, ast.Num) and first.value < 0)
    text = _expr(expr, _PRODUCT)
    return f"({text})" if signed and not text.startswith("(") else text


def _binary(expr: ast.Binary) -> str:
    level = _BINARY[expr.op]
    if level == _COMPARE:
        return f"{_expr(expr.left, _RANGE)} {expr.op} {_expr(expr.right, _RANGE)}"
    return f"{_expr(expr.left, level)} {expr.op} {_expr(expr.right, level + 1)}"


def _arguments(call: ast.Call) -> list[str]:
    keywords = [f"{quote(k.name) if k.quoted else k.name}={print_expr(k.value)}" for k in call.kwargs]
    return [print_expr(a) for a in call.args] + keywords


# --- lines broken where the parser goes on ---------------------------------------------------------------------------


def layout(prefix: str, expr: ast.Expr, indent: int) -> list[str]:
    """`prefix` and the expression, on one line if it fits, else broken."""
    pad = " " * indent
    line = pad + prefix + print_expr(expr)
    if len(line) <= WIDTH:
        return [line]
    chain = isinstance(expr, (ast.Pipe, ast.Parallel, ast.Conditional, ast.Binary))
    if isinstance(expr, ast.Binary) and expr.op == "*":
        chain = False
    if chain:
        lines = _broken(expr, indent + 2, WIDTH - len(prefix) + 2, base=indent)
    else:
        lines = _broken(expr, indent, WIDTH - len(prefix))
    return [pad + prefix + lines[0], *lines[1:]]


def listed(head: str, items: list[str], indent: int, inner: int) -> list[str]:
    """`head` and items with commas between them; lines behind the first are indented by `inner`."""
    lines = [" " * indent + head + items[0]]
    for item in items[1:]:
        if len(lines[-1]) + len(item) + 3 > WIDTH:
            lines[-1] += ","
            lines.append(" " * inner + item)
        else:
            lines[-1] += ", " + item
    return lines


def arguments(head: str, items: list[list[str]], indent: int, tail: str) -> list[str]:
    """`head`, the items each with a comma, as many on a line as fit, and `tail`."""
    inner = indent + 2
    lines: list[str] = []
    for item in items:
        whole = len(item) == 1
        if lines and whole and not lines[-1].startswith(" " * (inner + 1)) and _fits(lines[-1], item[0]):
            lines[-1] += f" {item[0]},"
        else:
            lines += [" " * inner + item[0], *item[1:]]
            lines[-1] += ","
    return [head, *lines, " " * indent + tail]


def _fits(line: str, more: str) -> bool:
    """Whether a line of whole items has room for one more; one that ends an item of several lines has not."""
    return len(line) + len(more) + 2 <= WIDTH and line.lstrip()[0] not in ")]"


def _broken(
    expr: ast.Expr, indent: int, room: int, at: int = _TERNARY, base: int | None = None
) -> list[str]:  # fmt: skip
    """An expression over several lines; the first without indentation, the others with it. The first has `room` columns
    with its indentation; `base` is where brackets close that a chain opens on it. Breaks where the parser goes on:
    inside brackets, and in front of operators."""
    base = indent if base is None else base
    text = _expr(expr, at)
    pad, inner = " " * indent, indent + 2
    if len(text) + indent <= room:
        return [text]
    if _level(expr) < at and not isinstance(expr, ast.Sequence):
        lines = _broken(expr, inner, WIDTH)
        return ["(", " " * inner + lines[0], *lines[1:], pad + ")"]
    match expr:
        case ast.Call() if expr.args or expr.kwargs:
            return arguments(f"{expr.func}(", _items(expr, inner), indent, ")")
        case ast.TupleExpr():
            return arguments("(", [_broken(item, inner, WIDTH - 1) for item in expr.items], indent, ")")
        case ast.ListExpr() if expr.items:
            return arguments("[", [_broken(item, inner, WIDTH - 1) for item in expr.items], indent, "]")
        case ast.Comprehension():
            return _comprehension(expr, indent)
        case ast.Label():
            lines = _broken(expr.value, indent, room - len(expr.name) - 2, _ATOM)
            return [f"{expr.name}: {lines[0]}", *lines[1:]]
        case ast.Pipe():
            return _joined([(">> " if n else "", s, _SEQUENCE) for n, s in enumerate(expr.stages)], indent, room, base)
        case ast.Parallel():
            return _joined([("| " if n else "", b, _PIPE) for n, b in enumerate(expr.branches)], indent, room, base)
        case ast.Sequence():
            return _words(expr, indent)
        case ast.Conditional():
            parts = [("", expr.then, _PARALLEL), ("if ", expr.test, _PARALLEL)]
            other = expr.other
            while isinstance(other, ast.Conditional):
                parts += [("else ", other.then, _PARALLEL), ("if ", other.test, _PARALLEL)]
                other = other.other
            return _joined([*parts, ("else ", other, _TERNARY)], indent, room, base)
        case ast.Binary(op="*") if not isinstance(expr.left, ast.Binary):
            tail = f" * {_expr(expr.right, _UNARY)}"
            lines = _broken(expr.left, indent, room - len(tail), _PRODUCT)
            return [*lines[:-1], lines[-1] + tail]
        case ast.Binary(op=op) if op != "*":
            return _joined(_operands(expr), indent, room, base)
        case _:
            return [text]


def _operands(expr: ast.Binary) -> list[tuple[str, ast.Expr, int]]:
    """A chain of operators of one precedence: what stands in front of each operand, the operand and its level."""
    level = _BINARY[expr.op]
    if level == _COMPARE:
        return [("", expr.left, _RANGE), (f"{expr.op} ", expr.right, _RANGE)]
    parts: list[tuple[str, ast.Expr, int]] = []
    node: ast.Expr = expr
    while isinstance(node, ast.Binary) and _BINARY[node.op] == level and "*" not in node.op:
        parts.append((f"{node.op} ", node.right, level + 1))
        node = node.left
    return [("", node, level), *reversed(parts)]


def _comprehension(expr: ast.Comprehension, indent: int) -> list[str]:
    inner = indent + 2
    pad = " " * inner
    lines = [pad + (first := _broken(expr.element, inner, WIDTH))[0], *first[1:]]
    for word, part in (f"for {expr.var} in ", expr.iterable), ("if ", expr.condition):
        if part is not None:
            more = _broken(part, inner, WIDTH - len(word), _PARALLEL)
            lines += [pad + word + more[0], *more[1:]]
    return ["[", *lines, " " * indent + "]"]


def _joined(parts: list[tuple[str, ast.Expr, int]], indent: int, room: int, base: int) -> list[str]:
    """Parts, each behind its operator; short ones share a line, except branches. The last may open its brackets on the
    first line: they close at `base`, unless that is negative."""
    pad = " " * indent
    out: list[str] = []
    for n, (operator, part, level) in enumerate(parts):
        last = n == len(parts) - 1
        if not out:
            out = _broken(part, indent, room, level, base if last else -1)
            continue
        text = operator + _expr(part, level)
        # the first line lacks its indentation, and what stands in front of it
        left = (WIDTH if len(out) > 1 else room - indent) - len(out[-1]) - 1
        if operator != "| " and len(text) <= left:
            out[-1] = f"{out[-1]} {text}"
            continue
        if last and operator != "| " and base >= 0 and indent + len(text) > WIDTH and len(out) == 1:
            opening = _opening(part, level)
            if opening and len(operator + opening) <= left:
                lines = _broken(part, base, base + left - len(operator), level)
                out = [f"{out[0]} {operator}{lines[0]}", *lines[1:]]
                continue
        lines = _broken(part, indent, WIDTH - len(operator), level)
        out += [pad + operator + lines[0], *lines[1:]]
    return out


def _opening(expr: ast.Expr, at: int) -> str:
    """What stands on the first line of an expression that is broken inside its brackets, or ""."""
    if _level(expr) < at:
        return "("
    match expr:
        case ast.Call() if expr.args or expr.kwargs:
            return f"{expr.func}("
        case ast.TupleExpr() | ast.ListExpr() | ast.Comprehension():
            return "("
        case ast.Label():
            inner = _opening(expr.value, _ATOM)
            return f"{expr.name}: {inner}" if inner else ""
        case _:
            return ""


def _words(expr: ast.Sequence, indent: int) -> list[str]:
    """A long sequence needs parentheses to go over several lines."""
    inner = indent + 2
    items = [_expr(expr.items[0], _PRODUCT), *map(_item, expr.items[1:])]
    lines = [""]
    for item in items:
        if lines[-1] and inner + len(lines[-1]) + len(item) + 1 > WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + item
    return ["(", *(" " * inner + line for line in lines), " " * indent + ")"]


def _items(call: ast.Call, indent: int) -> list[list[str]]:
    """A call's arguments, each over as many lines as it needs."""
    out = [_broken(argument, indent, WIDTH - 1) for argument in call.args]
    for k in call.kwargs:
        head = f"{quote(k.name) if k.quoted else k.name}="
        lines = _broken(k.value, indent, WIDTH - 1 - len(head))
        out.append([head + lines[0], *lines[1:]])
    return out


def selector(node: ast.Selector) -> str:
    """A selector as a spec writes it."""

    def index(at: ast.Slice | None) -> str:
        if at is None:
            return ""
        start = "" if at.start is None else str(at.start)
        return f"[{start}]" if at.single else f"[{start}:{'' if at.stop is None else at.stop}]"

    return ".".join(step.name + index(step.index) for step in node.steps)
