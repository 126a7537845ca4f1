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


# --- lines broken inside parentheses --------------------------------------------------------------------------------


def layout(prefix: str, expr: ast.Expr, indent: int) -> list[str]:
    """`prefix` and the expression, on one line if it fits, else broken inside parentheses."""
    pad = " " * indent
    line = pad + prefix + print_expr(expr)
    if len(line) <= WIDTH:
        return [line]
    lines = _broken(expr, indent, WIDTH - len(prefix))
    return [pad + prefix + lines[0], *lines[1:]]


def _broken(expr: ast.Expr, indent: int, room: int, at: int = _TERNARY) -> list[str]:
    """An expression over several lines; the first without indentation, the others with it. Breaks where the parser goes
    on: behind `(` and `,`, and in front of `>>` and `|` inside parentheses."""
    text = _expr(expr, at)
    pad, inner = " " * indent, indent + 2
    if len(text) + indent <= room:
        return [text]
    if _level(expr) < at:
        lines = _broken(expr, inner, WIDTH)
        return ["(", " " * inner + lines[0], *lines[1:], pad + ")"]
    match expr:
        case ast.Call() if expr.args or expr.kwargs:
            return [f"{expr.func}(", *_filled(_arguments(expr), inner), pad + ")"]
        case ast.TupleExpr() if len(expr.items) > 1:
            return ["(", *_filled(list(map(print_expr, expr.items)), inner), pad + ")"]
        case ast.ListExpr() if expr.items:
            return ["[", *_filled(list(map(print_expr, expr.items)), inner), pad + "]"]
        case ast.Label():
            lines = _broken(expr.value, indent, room, _ATOM)
            return [f"{expr.name}: {lines[0]}", *lines[1:]]
        case ast.Pipe():
            return _joined(">>", [(s, _SEQUENCE) for s in expr.stages], indent)
        case ast.Parallel():
            return _joined("|", [(b, _PIPE) for b in expr.branches], indent)
        case ast.Sequence():
            return _words(expr, indent)
        case ast.Binary(op="*"):
            lines = _broken(expr.left, indent, room, _PRODUCT)
            return [*lines[:-1], f"{lines[-1]} * {_expr(expr.right, _UNARY)}"]
        case _:
            return [text]


def _joined(operator: str, parts: list[tuple[ast.Expr, int]], indent: int) -> list[str]:
    """Parts with the operator in front of all but the first; short ones share a line."""
    pad = " " * indent
    out: list[str] = []
    for n, (part, level) in enumerate(parts):
        lines = _broken(part, indent, WIDTH - 4, level)
        head = lines[0] if n == 0 else f"{operator} {lines[0]}"
        if out and operator == ">>" and len(out[-1]) + len(head) + 1 <= WIDTH:
            out[-1] = f"{out[-1]} {head}"
        else:
            out.append(head if n == 0 else pad + head)
        out += lines[1:]
    return out


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


def _filled(items: list[str], indent: int) -> list[str]:
    lines = [""]
    for item in items:
        if lines[-1] and indent + len(lines[-1]) + len(item) + 2 > WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + item + ","
    return [" " * indent + line for line in lines]


def selector(node: ast.Selector) -> str:
    """A selector as a spec writes it."""

    def index(at: ast.Slice | None) -> str:
        if at is None:
            return ""
        start = "" if at.start is None else str(at.start)
        return f"[{start}]" if at.single else f"[{start}:{'' if at.stop is None else at.stop}]"

    return ".".join(step.name + index(step.index) for step in node.steps)
