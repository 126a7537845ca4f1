"""redistribute, and the collectives that it becomes: what moves a value from one place on a mesh axis to another."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from hybridc.ir.attrs import Choice, Float, Int, attr
from hybridc.ir.emit import ATOM, Code, Emit, call, quote
from hybridc.ir.ops.base import Op, Widths, op
from hybridc.ir.places import AXES, PARTIAL, REDUCED, REPLICATED, Place, split
from hybridc.ir.types import TensorType

KINDS = ("replicated", "split", "partial", "reduced")

MOVES: dict[tuple[str, str], tuple[str, str]] = {
    ("split", "reduced"): ("all_gather", "reduce_scatter"),
    ("split", "replicated"): ("all_gather", "slice"),
    ("partial", "split"): ("reduce_scatter", "all_gather"),
    ("partial", "replicated"): ("all_reduce", "copy"),
    ("partial", "reduced"): ("all_reduce", "all_reduce"),
    ("replicated", "split"): ("slice", "all_gather"),
    ("replicated", "reduced"): ("copy", "all_reduce"),
    ("reduced", "split"): ("slice", "pad"),
    ("reduced", "replicated"): ("copy", "share"),
    ("split", "split"): ("all_to_all", "all_to_all"),
}
"""What takes a value from one place to another, and its gradient back."""


def sent(move: str, ranks: int) -> float:
    """The share of a whole value's bytes that a rank sends in a move (ring algorithms: Thakur et al., 2005)."""
    ring = (ranks - 1) / ranks
    shares = {"all_gather": ring, "reduce_scatter": ring, "all_reduce": 2 * ring, "all_to_all": ring / ranks}
    return shares.get(move, 0.0)


@op("redistribute")
class Redistribute(Op):
    """Its operand at another place on a mesh axis."""

    inserted: ClassVar[bool] = True

    axis: str = attr(Choice(AXES), doc="mesh axis")
    to: str = attr(Choice(KINDS), doc="where the value is to be")
    dim: int = attr(Int(0), 0, doc="the dim that is split")

    def place(self) -> Place:
        """Where the value is to be."""
        return {"split": split(self.dim), "partial": PARTIAL, "reduced": REDUCED}.get(self.to, REPLICATED)

    def result(self, operands: tuple[TensorType, ...]) -> TensorType:
        return operands[0].at(self.axis, self.place())

    def saved(self, ins: Widths, seq: int) -> float:
        return 0.0

    def lowered(self, source: TensorType, ranks: int) -> Collective:
        """The collective that does it for a value of a type. Raises KeyError for a move that there is none for."""
        before = source.place(self.axis)
        move, back = MOVES[before.kind, self.to]
        whole = float(source.width * source.dtype.bytes)
        sends, sends_back = (whole * sent(name, ranks) for name in (move, back))
        dims = {"dim": self.dim if move != "all_gather" else before.dim}
        if move == "all_to_all":
            dims = {"dim": before.dim, "into": self.dim}
        elif move in ("all_reduce", "copy"):
            dims = {}
        return COLLECTIVES[move](self.axis, self.to, back, sends, sends_back, **dims)


@dataclasses.dataclass(frozen=True)
class Collective(Op):
    """A move of a value over a mesh axis, and the move of its gradient `back`. `sends` are the bytes that a rank sends
    for each token, `sends_back` those of the gradient."""

    inserted: ClassVar[bool] = True

    axis: str = attr(Choice(AXES), doc="mesh axis")
    to: str = attr(Choice(KINDS), doc="where the value is then")
    back: str = attr(Choice(tuple(sorted({b for _, b in MOVES.values()}))), doc="move of the gradient")
    sends: float = attr(Float(0.0), 0.0, doc="bytes that a rank sends for each token")
    sends_back: float = attr(Float(0.0), 0.0, doc="bytes that it sends in the backward")
    dim: int = attr(Int(0), 1, doc="the dim that is split, before or after")
    into: int = attr(Int(0), 0, doc="the dim that is split after an all_to_all")

    def place(self) -> Place:
        """Where the value is then."""
        if self.to != "split":
            return {"partial": PARTIAL, "reduced": REDUCED}.get(self.to, REPLICATED)
        return split(self.into or self.dim)

    def result(self, operands: tuple[TensorType, ...]) -> TensorType:
        return operands[0].at(self.axis, self.place())

    def saved(self, ins: Widths, seq: int) -> float:
        return 0.0

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        options: dict[str, object] = {"dim": self.dim} if self.dim != 1 or self.into else {}
        if self.into:
            options["into"] = self.into
        usual = {"all_gather": "reduce_scatter", "all_reduce": "copy", "slice": "all_gather", "copy": "all_reduce"}
        if self.back != usual.get(self.kind, self.back):
            options["back"] = quote(self.back)
        return Code(call(f"ctx.{self.axis}.{self.kind}", args[0].text, **options), ATOM)


@op("all_gather")
class AllGather(Collective):
    """The ranks' parts, one behind the other, on each of them."""


@op("reduce_scatter")
class ReduceScatter(Collective):
    """Each rank's part of the sum of what they have."""


@op("all_reduce")
class AllReduce(Collective):
    """The sum of what the ranks have, on each of them."""


@op("all_to_all")
class AllToAll(Collective):
    """Parts of one dim to parts of another."""


@op("slice")
class Slice(Collective):
    """Each rank's part of what all have."""


@op("copy")
class Copy(Collective):
    """What each rank has, as it is; only its gradient is moved."""


COLLECTIVES: dict[str, type[Collective]] = {
    c.kind: c for c in (AllGather, ReduceScatter, AllReduce, AllToAll, Slice, Copy)
}
