"""Layer patterns: an expression to the list of block occurrences that it stands for, with pipeline cuts."""

from __future__ import annotations

from dataclasses import dataclass

from hybridc.diagnostics import Span, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.scope import Report, Scope, evaluate, integer, truth
from hybridc.ir.ops import find

MAX_LAYERS = 100_000


@dataclass(frozen=True)
class Occurrence:
    """One layer: a block, the arguments that the pattern gives it, and the scope in which those are read."""

    block: ast.Block
    args: tuple[tuple[str, ast.Expr], ...]
    scope: Scope
    span: Span


@dataclass(frozen=True)
class Cut:
    """A pipeline-stage boundary."""

    span: Span


Item = Occurrence | Cut


def expand(expr: ast.Expr, scope: Scope, report: Report) -> list[Item]:
    """All layers of a pattern in order."""
    report.step(expr.span)
    match expr:
        case ast.Name():
            return _name(expr, scope, report)
        case ast.Call():
            return _call(expr, scope, report)
        case ast.Sequence() | ast.ListExpr() | ast.TupleExpr():
            return _limited([i for e in expr.items for i in expand(e, scope, report)], expr.span, report)
        case ast.Parallel():
            out: list[Item] = []
            for n, branch in enumerate(expr.branches):
                out += [Cut(branch.span)] if n else []
                out += expand(branch, scope, report)
            return _limited(out, expr.span, report)
        case ast.Binary(op="*"):
            return _repeat(expr, scope, report)
        case ast.Conditional():
            return expand(expr.then if truth(expr.test, scope, report) else expr.other, scope, report)
        case ast.Comprehension():
            return _comprehension(expr, scope, report)
        case ast.Str():
            report.fail(
                "HYB134",
                expr.span,
                "a string is not a layer",
                'name its letters: pattern("M*", M=Mamba, "*"=Attention)',
            )
        case _:
            report.fail("HYB134", expr.span, "this is not a layer pattern", "use block names, `*`, parentheses and `|`")


def _limited(items: list[Item], span: Span, report: Report) -> list[Item]:
    if len(items) > MAX_LAYERS:
        report.fail("HYB120", span, f"more than {MAX_LAYERS} layers", "use fewer repetitions")
    return items


def _blocks(scope: Scope) -> list[str]:
    found = []
    walk: Scope | None = scope
    while walk is not None:
        found += [n for n, b in walk.names.items() if b.block is not None]
        walk = walk.parent
    return found


def _name(expr: ast.Name, scope: Scope, report: Report) -> list[Item]:
    binding = scope.find(expr.id)
    if binding is None:
        if find(expr.id):
            report.fail(
                "HYB134", expr.span, f"`{expr.id}` is an op, not a block", "put it in a block and name that here"
            )
        report.fail("HYB101", expr.span, f"there is no block `{expr.id}`", did_you_mean(expr.id, _blocks(scope)))
    if binding.block is not None:
        return [Occurrence(binding.block, (), scope, expr.span)]
    if binding.expr is not None and binding.scope is not None:
        return expand(binding.expr, binding.scope, report)
    report.fail("HYB134", expr.span, f"`{expr.id}` is {binding.what}, not a block", did_you_mean("", _blocks(scope)))


def _call(expr: ast.Call, scope: Scope, report: Report) -> list[Item]:
    if expr.func == "pattern":
        return _letters(expr, scope, report)
    binding = scope.find(expr.func)
    if binding is None or binding.block is None:
        if binding is None and find(expr.func):
            report.fail(
                "HYB134", expr.span, f"`{expr.func}` is an op, not a block", "put it in a block and name that here"
            )
        report.fail("HYB101", expr.span, f"there is no block `{expr.func}`", did_you_mean(expr.func, _blocks(scope)))
    block = binding.block
    names = [p.name for p in block.params]
    given: dict[str, ast.Expr] = {}
    for n, arg in enumerate(expr.args):
        if n >= len(names):
            report.fail(
                "HYB114", arg.span, f"`{block.name}` takes {len(names)} arguments", "remove this one or add a param"
            )
        given[names[n]] = arg
    for kw in expr.kwargs:
        if kw.name not in names:
            report.fail("HYB109", kw.span, f"`{block.name}` has no param `{kw.name}`", did_you_mean(kw.name, names))
        if kw.name in given:
            report.fail("HYB115", kw.span, f"`{kw.name}` is given twice", "give it once")
        given[kw.name] = kw.value
    return [Occurrence(block, tuple(given.items()), scope, expr.span)]


def _repeat(expr: ast.Binary, scope: Scope, report: Report) -> list[Item]:
    count = integer(expr.right, scope, report)
    if count < 0:
        report.fail("HYB133", expr.right.span, f"a pattern cannot repeat {count} times", "use 0 or more")
    items = expand(expr.left, scope, report)
    if len(items) * count > MAX_LAYERS:
        report.fail("HYB120", expr.span, f"more than {MAX_LAYERS} layers", "use fewer repetitions")
    return items * count


def _comprehension(expr: ast.Comprehension, scope: Scope, report: Report) -> list[Item]:
    values = evaluate(expr.iterable, scope, report)
    if not isinstance(values, tuple):
        report.fail("HYB111", expr.iterable.span, "this cannot be walked through", "write a range such as 0..32")
    out: list[Item] = []
    for value in values:
        inner = Scope(scope)
        inner.constant(expr.var, value, expr.span, "a loop variable")
        if expr.condition is None or truth(expr.condition, inner, report):
            out += expand(expr.element, inner, report)
        _limited(out, expr.span, report)
    return out


def _letters(expr: ast.Call, scope: Scope, report: Report) -> list[Item]:
    """`pattern("M-M*", M=Mamba, "-"=Mlp, "*"=Attn)`: one letter a layer, `|` a stage boundary, blanks ignored."""
    if len(expr.args) != 1:
        report.fail(
            "HYB110", expr.span, "pattern takes one string and its letters", 'write pattern("M*", M=.., "*"=..)'
        )
    text = evaluate(expr.args[0], scope, report)
    if not isinstance(text, str):
        report.fail("HYB111", expr.args[0].span, "expected a string of letters", 'write it in quotes, "M-M*"')
    letters: dict[str, list[Item]] = {}
    for kw in expr.kwargs:
        if len(kw.name) != 1 or kw.name in "| ":
            report.fail("HYB131", kw.span, f'"{kw.name}" is not one letter', "a pattern has one letter for each block")
        if kw.name in letters:
            report.fail("HYB115", kw.span, f"the letter `{kw.name}` is given twice", "give it once")
        letters[kw.name] = expand(kw.value, scope, report)
    start = expr.args[0].span
    out: list[Item] = []
    for n, letter in enumerate(text):
        at = start
        if start.line == start.end_line and start.end - start.start == len(text) + 2:
            offset, col = start.start + 1 + n, start.col + 1 + n
            at = Span(start.file, offset, offset + 1, start.line, col, start.line, col + 1)
        if letter == "|":
            out.append(Cut(at))
        elif letter in letters:
            out += letters[letter]
        elif not letter.isspace():
            help = f"give it a block: {did_you_mean(letter, letters)}" if letters else f'add "{letter}"=Block'
            report.fail("HYB131", at, f"the letter `{letter}` at column {n + 1} has no block", help)
    unused = [kw for kw in expr.kwargs if kw.name not in text]
    for kw in unused:
        report.sink.report(
            "HYB131", kw.span, f"the letter `{kw.name}` does not occur in the pattern", "remove it", severity="warning"
        )
    return _limited(out, expr.span, report)
