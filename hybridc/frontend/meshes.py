"""The `mesh` block: axes with their sizes and the form that the spec gave them."""

from __future__ import annotations

from hybridc.diagnostics import Span, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.printer import print_expr
from hybridc.frontend.scope import Failed, Report, Scope, integer
from hybridc.ir.graph import MeshAxis

FORMS: dict[str, tuple[str, ...]] = {
    "pp": ("interleaved", "zero_bubble", "zbv"),
    "dp": ("fsdp", "replicate"),
    "cp": ("dynamic",),
    "tp": (),
    "ep": ("hybrid", "flat", "gather"),
}
"""The axes of a mesh, and the forms besides a plain size that each takes."""


def lower_mesh(mesh: ast.Mesh | None, scope: Scope, report: Report) -> tuple[MeshAxis, ...]:
    """The axes of a spec in their canonical order."""
    axes: dict[str, MeshAxis] = {}
    for axis in mesh.axes if mesh else ():
        if axis.name in axes:
            report.sink.report("HYB103", axis.span, f"the axis `{axis.name}` is given twice", "give it once")
            continue
        try:
            axes[axis.name] = _axis(axis, scope, report)
        except Failed:
            continue
    return tuple(axes[name] for name in FORMS if name in axes)


def _axis(axis: ast.Axis, scope: Scope, report: Report) -> MeshAxis:
    value = axis.value
    if axis.name not in FORMS:
        report.fail("HYB218", axis.span, f"there is no mesh axis `{axis.name}`", did_you_mean(axis.name, FORMS))
    if isinstance(value, ast.Name) and value.id == "auto":
        report.fail(
            "HYB219", value.span, f"`{axis.name} = auto` has no size yet", "give a number until a plan has been made"
        )
    if isinstance(value, ast.Call):
        forms = FORMS[axis.name]
        if value.func not in forms:
            help = did_you_mean(value.func, forms) if forms else "write a plain number"
            report.fail("HYB219", value.span, f"`{axis.name}` has no form `{value.func}`", help)
        size = _form(value, scope, report)
    else:
        size = integer(value, scope, report)
    form = print_expr(value)
    if axis.name == "pp" and isinstance(value, ast.Call):
        form = _schedule(value, size, scope, report)
    return MeshAxis(axis.name, _positive(size, value.span, axis.name, report), form, axis.span)


def _positive(size: int, span: Span, name: str, report: Report) -> int:
    if not 1 <= size <= 2**20:
        report.fail("HYB219", span, f"`{name}` has size {size}", "use a size from 1 to 1048576")
    return size


def _schedule(call: ast.Call, ranks: int, scope: Scope, report: Report) -> str:
    """A pipeline's form with its numbers, which the pass that cuts stages and emitted code read."""
    chunks = next((k.value for k in call.kwargs if k.name == "chunks"), None)
    if chunks is None:
        return f"{call.func}({ranks})"
    count = _positive(integer(chunks, scope, report), chunks.span, "chunks", report)
    return f"{call.func}({ranks}, chunks={count})"


def _form(call: ast.Call, scope: Scope, report: Report) -> int:
    """Ranks of `fsdp(4)`, `dynamic(1..8)` (its largest size), `hybrid(node=2, local=4)` (their product)."""
    given = {k.name: k.value for k in call.kwargs}
    if call.func in ("interleaved", "zero_bubble"):
        if len(call.args) != 1 or set(given) != {"chunks"}:
            help = f"write {call.func}(2, chunks=2)"
            report.fail("HYB219", call.span, f"{call.func} takes a number of ranks and chunks", help)
        return integer(call.args[0], scope, report)
    if call.func == "hybrid":
        if call.args or set(given) != {"node", "local"}:
            report.fail("HYB219", call.span, "hybrid takes node and local", "write hybrid(node=2, local=4)")
        sizes = [_positive(integer(e, scope, report), e.span, n, report) for n, e in given.items()]
        return sizes[0] * sizes[1]
    if given or len(call.args) != 1:
        report.fail("HYB219", call.span, f"{call.func} takes one size", f"write {call.func}(4)")
    argument = call.args[0]
    if call.func == "dynamic":
        if not isinstance(argument, ast.Range):
            report.fail("HYB219", argument.span, "dynamic takes a range of sizes", "write dynamic(1..8)")
        low, high = integer(argument.start, scope, report), integer(argument.stop, scope, report)
        if not 1 <= low <= high:
            report.fail("HYB219", argument.span, f"{low}..{high} is not a range of sizes", "write dynamic(1..8)")
        return high
    return integer(argument, scope, report)
