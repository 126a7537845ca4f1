"""The ordered list of passes, run with verification between them, printing and timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from hybridc.diagnostics import NO_SPAN, Sink, did_you_mean
from hybridc.ir.graph import Module
from hybridc.ir.text import print_module
from hybridc.ir.verify import verify
from hybridc.passes.divide import divide
from hybridc.passes.expand import expand
from hybridc.passes.infer import infer
from hybridc.passes.simplify import simplify

Pass = Callable[[Module, Sink], Module]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("expand", expand),
    ("infer", infer),
    ("simplify", simplify),
    ("divide", divide),
)
"""Name and function of every pass, in the order in which they run."""

LATER = ("precision", "layout", "collectives", "pipeline_split", "fuse")
"""Passes behind these: selectors need types, layouts what is quantized, and kernels depend on formats."""

REQUIRED = ("expand", "infer", "precision", "layout", "collectives", "pipeline_split")
"""What codegen cannot do without."""


@dataclass(frozen=True)
class Timing:
    """How long a pass took, in seconds, its verification included."""

    name: str
    seconds: float


def run(
    module: Module,
    sink: Sink,
    table: Sequence[tuple[str, Pass]] = PASSES,
    *,
    passes: Collection[str] | None = None,
    print_after: Collection[str] = (),
    out: Callable[[str], object] = print,
) -> tuple[Module, tuple[Timing, ...]]:
    """Runs the passes of a table (all, or those named and the required ones), verifying after each; stops where one
    reports an error.

    `print_after` names passes, or "all"; their result goes to `out` as text.
    """
    if table is PASSES:
        known = [*(name for name, _ in PASSES), *LATER]
        for name in [*(passes or ()), *print_after]:
            if name not in known and name != "all":
                sink.report("HYB602", NO_SPAN, f"there is no pass `{name}`", did_you_mean(name, known))
    timings: list[Timing] = []
    for name, function in table:
        if sink.errors:
            break
        if passes is not None and name not in passes and name not in REQUIRED:
            continue
        start = time.perf_counter()
        module = function(module, sink)
        if not sink.errors:
            verify(module)
        timings.append(Timing(name, time.perf_counter() - start))
        if "all" in print_after or name in print_after:
            out(f"// after {name}\n{print_module(module)}")
    return module, tuple(timings)
