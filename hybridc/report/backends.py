"""Who computes the parts of an op on each target, and why not others: a table for `hybridc ops NAME`."""

from __future__ import annotations

import textwrap

from hybridc.ir.backends import LIBRARIES, TARGETS, Choice, capability, choose, offering
from hybridc.ir.emit import Emit
from hybridc.ir.kernels import Kernel
from hybridc.ir.ops.base import Op, Widths

DTYPE = "bf16"
"""What the example computes in."""

FORMATS = ("fp8(block128)", "bitnet")
"""Number formats whose products have a row of their own."""


def uses(op: Op, ins: Widths, format: str = "", *, fused: bool = True) -> dict[str, Choice]:
    """The parts of an op that are no generated kernel's on a GPU, with what was asked of backends for the CPU; its
    projections are in `format`. Without `fused`, those that a kernel replaces are there too."""
    emit = Emit(dtype=DTYPE, formats=dict.fromkeys(op.projections(ins), format) if format else {})
    if fused:
        emit.inner = {k.part: (k.name, k) for k in op.kernels(ins)}
    if op.body(ins, emit) is None:
        op.constructor(ins, emit)
    return {use.choice.part: use.choice for use in emit.uses}


def table(op: Op, ins: Widths, width: int) -> list[str]:
    """Lines: for each part who computes it by target, and what `--with` could name; then reasons."""
    rows: list[tuple[str, ...]] = []
    notes: dict[str, list[str]] = {}
    plain, fused = uses(op, ins, fused=False), uses(op, ins)
    for part, choice in plain.items():
        if part in fused:
            rows.append(_row(part, part, choice, notes))
        else:
            rows.append((part, choice.backend, *("generated" for _ in TARGETS[1:]), ""))
            if others := offering(part):
                reason = "generated kernels come first; it is asked where `passes` leaves out `fuse`"
                notes.setdefault(f"{', '.join(others)}: {reason}", []).append(part)
    for format in FORMATS if op.projections(ins) else ():
        for part, choice in uses(op, ins, format).items():
            if part not in plain or choice.facts != plain[part].facts:
                rows.append(_row(f"{part} in {format}", part, choice, notes))
    if not rows:
        return ["  torch, on all targets"]
    rows.insert(0, ("part", *TARGETS, "--with"))
    wide = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = ["  " + "  ".join(f"{cell:{w}s}" for cell, w in zip(row, wide, strict=True)).rstrip() for row in rows]
    if kernels := _generated(op.kernels(ins)):
        lines += textwrap.wrap(f"Generated on GPUs: {kernels}.", width, initial_indent="  ", subsequent_indent="    ")
    for reason, places in notes.items():
        lines += textwrap.wrap(f"{', '.join(places)}: {reason}", width, initial_indent="  ", subsequent_indent="    ")
    return lines


def _row(shown: str, part: str, choice: Choice, notes: dict[str, list[str]]) -> tuple[str, ...]:
    """A part's row; reasons against backends go to `notes`, with the places that each is for."""
    cells = []
    libraries = offering(part)
    for target in TARGETS:
        found = choose(part, choice.facts, target)
        ours = found.backend or "nobody"
        cells.append(f"{ours}, slow" if found.offer is not None and found.offer.plain and capability(target) else ours)
        if not capability(target):
            continue
        asked = (choose(part, choice.facts, target, (name,)) for name in libraries)
        refusals = [r for a in asked for r in a.refusals if r[0] in LIBRARIES]
        for name, reason in (*refusals, *(found.refusals if found.offer is None else ())):
            places = notes.setdefault(f"{name}: {reason}", [])
            place = f"{shown} on {target}"
            if place not in places:
                places.append(place)
    return shown, *cells, " ".join(libraries)


def _generated(kernels: tuple[Kernel, ...]) -> str:
    """Names of kernels, with the parts that they are for."""
    return ", ".join(f"{k.name} ({k.part})" if k.part else k.name for k in kernels)
