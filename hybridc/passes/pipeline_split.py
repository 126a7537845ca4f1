"""pipeline_split: which layers each pipeline stage has."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from hybridc.diagnostics import NO_SPAN, Sink, did_you_mean
from hybridc.ir.graph import Module
from hybridc.ir.pipelines import schedule

NOMINAL_LENGTH = 4096
"""Tokens of a document, for the part of attention's work that grows with it."""

TRAINED = 3.0
"""Operations of forward and backward for each of the forward: a product has two in its backward."""


def pipeline_split(module: Module, sink: Sink, times: Mapping[str, float] | None = None) -> Module:
    """Gives layers the stages of the mesh's schedule, so that the slowest stage is as fast as it can be.

    In and out: typed modules. Layers that the spec has put into a stage by `|` stay together. `times` are measured
    milliseconds of blocks by name, and of "embed" and "head"; without them, time is operations. Changes no number.
    """
    if module.axis("pp") == 1:
        return module
    if times is not None and not _known(module, times, sink):
        return module
    cost = times if times is not None else work(module)
    groups = [list(same) for _, same in groupby(module.layers, key=lambda layer: layer.stage)]
    if len(groups) == 1:
        groups = [[layer] for layer in module.layers]
    sums = [sum(cost[layer.block] for layer in group) for group in groups]
    sums[0] += cost["embed"]
    sums[-1] += cost["head"]
    ends = cuts(sums, schedule(module).stages)
    layers = []
    for n, group in enumerate(groups):
        layers += [replace(layer, stage=bisect_right(ends, n)) for layer in group]
    return replace(module, layers=tuple(layers))


def work(module: Module, seq: int = NOMINAL_LENGTH) -> dict[str, float]:
    """Operations for a token of each block, the embedding and the head, in forward and backward."""
    return {
        name: TRAINED * sum(node.op.flops(block.widths(node), seq) for node in block.nodes)
        for name, block in module.by_name.items()
    }


def cuts(times: Sequence[float], stages: int) -> list[int]:
    """The ends of `stages` runs of `times`, none of them empty, whose largest sum is the smallest that there is; among
    such the first ones, which keep most for their backward under 1F1B, are no larger than their share."""
    before = [0, *accumulate(_whole(times))]
    low, high = 0, before[-1]
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _latest(before, stages, middle) else (middle + 1, high)
    starts = _latest(before, stages, high)
    ends, at = [], 0
    for n in range(1, stages):
        most = bisect_right(before, before[at] + high) - 1
        share = before[at] + (before[-1] - before[at]) // (stages - n + 1)
        at = min(max(bisect_right(before, share) - 1, starts[n], at + 1), most, len(times) - stages + n)
        ends.append(at)
    return [*ends, len(times)]


def _whole(times: Sequence[float]) -> list[int]:
    """Times as whole numbers, so that sums are exact: 2^48 of them are the total."""
    total = sum(times)
    return [round(time / total * 2**48) for time in times] if total else [1] * len(times)


def _latest(before: list[int], stages: int, bound: int) -> list[int]:
    """Where stages start that are as long as the bound lets them be, the last one first; none where they do not reach
    back to the first layer, or one is over the bound."""
    starts, end = [], len(before) - 1
    for n in reversed(range(stages)):
        start = max(bisect_left(before, before[end] - bound), n)  # a layer is left for each stage in front
        if start >= end:
            return []
        starts.append(start)
        end = start
    return starts[::-1] if end == 0 else []


def _known(module: Module, times: Mapping[str, float], sink: Sink) -> bool:
    """Whether there is a time for each block, and for nothing else."""
    for name, value in times.items():
        if name not in module.by_name:
            label = f"a stage time for `{name}`, which is no block of {module.name}"
            sink.report("HYB608", NO_SPAN, label, did_you_mean(name, module.by_name))
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            sink.report("HYB608", NO_SPAN, f"the stage time of `{name}` is {value!r}", "give milliseconds, 0 or more")
    missing = [name for name in module.by_name if name not in times]
    if missing:
        shown = ", ".join(f"`{name}`" for name in missing)
        sink.report("HYB608", NO_SPAN, f"no stage time for {shown}", "give milliseconds for each block, embed and head")
    return not sink.errors
