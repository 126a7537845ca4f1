"""lora: a low-rank adapter on a projection of another op."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from hybridc.ir.attrs import Int, attr
from hybridc.ir.emit import call
from hybridc.ir.ops.base import ZEROS, Fill, Op, Param, op


@op("lora", "linear")
class Lora(Op):
    """Adds up(down(x)) to a projection of x (Hu et al., 2021); in a shared block each layer has an adapter of its own.

    Each part of a fused projection has its own pair. Parameters: adapter.down [parts rank, in] (rows of the parts in
    turn), adapter.up.N [rows of part N, rank], which start at zero.
    """

    record: ClassVar[bool] = True

    rank: int = attr(Int(), doc="width between the two projections")

    def adapter(self, width: int, parts: tuple[int, ...]) -> tuple[Param, ...]:
        """Parameters of the adapter on a projection from `width` to `parts`."""
        down = Param("down.weight", (self.rank * len(parts), width), Fill("uniform", (float(f"{width**-0.5:.4g}"),)))
        ups = (Param(f"up.{n}.weight", (rows, self.rank), ZEROS) for n, rows in enumerate(parts))
        return tuple(dataclasses.replace(p, name=f"adapter.{p.name}", own=True) for p in (down, *ups))

    def construct(self, width: int, parts: tuple[int, ...]) -> str:
        """The runtime module."""
        shown = f"({', '.join(map(str, parts))}{',' if len(parts) == 1 else ''})"
        return call("ops.Lora", width, self.rank, shown)
