"""divide: whether the mesh's axes divide what they cut."""

from __future__ import annotations

from collections.abc import Sequence

from hybridc.diagnostics import NO_SPAN, Sink, Span
from hybridc.ir.graph import Module, Node
from hybridc.ir.ops.base import Split
from hybridc.ir.pipelines import schedule

MOST = 4096
"""No larger size of an axis is proposed."""


def divide(module: Module, sink: Sink) -> Module:
    """Report HYB214 to HYB217 where a mesh axis does not divide heads, channels, experts or stages, or cuts nothing
    at all.

    Returns the module as it is: the pass is a check that needs derived attributes.
    """
    sizes = {axis: module.axis(axis) for axis in ("tp", "ep")}
    spans = {a.name: a.span for a in module.mesh}
    cut: dict[str, list[Split]] = {"tp": [], "ep": []}
    found: dict[tuple[object, ...], tuple[Node, Split]] = {}
    for block in module.blocks:
        for node in block.nodes:
            for split in node.op.splits(block.widths(node)):
                cut[split.axis].append(split)
                if not split.fits(sizes[split.axis]):
                    found.setdefault((node.span, split), (node, split))
    for node, split in found.values():
        ranks, at = sizes[split.axis], spans[split.axis].line
        span = dict(node.spans).get(split.attribute, node.span)
        where = f"{split.axis} = {ranks}" + (f" (line {at})" if at else "")
        label = f"{split.size} {split.what} over {where}"
        sink.report(split.code, span, label, _remedy(split, ranks, cut[split.axis]))
    for axis, what in (("tp", "heads or hidden channels"), ("ep", "experts")):
        if sizes[axis] > 1 and not cut[axis]:
            label = f"{axis} = {sizes[axis]}, but the model has no {what} to cut"
            sink.report("HYB216", spans[axis], label, f"leave out {axis}", severity="warning")
    _stages(module, spans.get("pp", NO_SPAN), sink)
    return module


def _remedy(split: Split, ranks: int, every: Sequence[Split]) -> str:
    """What would divide: a size of the op, or the nearest sizes of the axis that divide everything that it cuts."""
    kinds = set(every)
    fitting = [n for n in range(1, min(4 * ranks, MOST) + 1) if all(s.fits(n) for s in kinds)]
    below = [n for n in fitting if n < ranks][-1:]
    above = [n for n in fitting if n > ranks][:1]
    choices = " or ".join(map(str, below + above)) or "1"
    return f"use a multiple of {ranks} for {split.attribute}, or {split.axis} = {choices}"


def _stages(module: Module, span: Span, sink: Sink) -> None:
    wanted, given = schedule(module).stages, module.layers[-1].stage + 1
    of = f"pp = {module.axis('pp')}" if wanted == module.axis("pp") else f"{wanted} of the schedule"
    if given > 1 and any(a.name == "pp" for a in module.mesh) and given % wanted:
        label = f"the layers are cut into {given} stages for {of}"
        sink.report("HYB217", span, label, f"use a multiple of {wanted} stages, or pp = {given}")
    elif wanted > len(module.layers):
        label = f"{of} for {len(module.layers)} layers"
        sink.report("HYB217", span, label, f"use {len(module.layers)} stages or less")
