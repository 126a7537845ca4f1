"""How an op lies on the ranks of a mesh axis: layouts that it takes and gives, what a rank computes, which part of each
parameter it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybridc.ir.places import PARTIAL, REDUCED, REPLICATED, Place, split

if TYPE_CHECKING:
    from hybridc.ir.ops.base import Op, Widths

TOKENS = split(1)
"""Each rank has a part of the tokens: sequence parallelism (Korthikanti et al., 2022)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a parameter a rank has.

    `split`: a piece of each of the `parts` that are fused along dim `dim`, one after the other; `copies` neighbours
    have the same piece of a part, and its gradient is the sum of theirs. `first`: the whole, on the first rank alone.
    `summed`: the whole on each rank, whose gradient is the sum of the ranks'. `same`: the whole, and its gradient too.
    """

    kind: str
    dim: int = 0
    parts: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()


FIRST, SUMMED, SAME = Cut("first"), Cut("summed"), Cut("same")


def cut(ranks: int, *parts: tuple[int, int], dim: int = 0) -> Cut:
    """The cut of parts of (rows, units) over ranks. Units, such as heads, stay whole: where there are fewer of them
    than ranks, neighbours have copies of one."""
    copies = tuple(copied(units, ranks) for _, units in parts)
    return Cut("split", dim, tuple(rows for rows, _ in parts), copies if max(copies) > 1 else ())


def whole_blocks(cut: Cut, ranks: int, side: int) -> bool:
    """Whether blocks of `side` numbers, counted along the dim of a cut from the start of what a rank has, are blocks of
    the whole: then their scales are those of one rank."""
    runs = (run for rank in range(ranks) for run in _runs(cut, rank, ranks) if run[2])
    return all(not first % side and not at % side and (not n % side or end) for first, at, n, end in runs)


def _runs(cut: Cut, rank: int, ranks: int) -> list[tuple[int, int, int, bool]]:
    """What a rank has of a cut dim: the first number in the whole and the first one here, how many there are, and
    whether they are the last of the whole. Pieces of parts that follow on each other are one."""
    runs, begin, here, total = [(0, 0, 0, False)], 0, 0, sum(cut.parts)
    for part, copies in zip(cut.parts, cut.copies or (1,) * len(cut.parts), strict=True):
        size = -(-part * copies // ranks)
        start = min(rank // copies * size, part)
        n, last = min(size, part - start), runs[-1]
        follows = begin + start == last[0] + last[2] and here == last[1] + last[2]
        first, at, before = runs.pop()[:3] if follows else (begin + start, here, 0)
        runs.append((first, at, before + n, begin + start + n == total))
        begin, here = begin + part, here + size
    return runs


def copied(units: int, ranks: int) -> int:
    """How many ranks have the same of `units` things."""
    return max(1, ranks // units)


def local(units: int, ranks: int) -> int:
    """How many of `units` things a rank has."""
    return max(1, units // ranks)


@dataclass(frozen=True)
class Sharded:
    """What one rank computes: an op of its sizes on operands of the widths `ins`, with its parts of the parameters.
    Parameters that `cuts` does not name are whole and summed. `adds` are projections that are applied to a rank's part
    of a sum."""

    op: Op
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    ins: Widths | None = None
    adds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """An op on an axis: operands at the places `takes` give a result at `gives`. `name` says which of the op's ways of
    being cut it is, "" for the whole op on what a rank has of its operands."""

    name: str
    takes: tuple[Place, ...]
    gives: Place


def tokenwise(operands: int, *, additive: bool) -> tuple[Rule, ...]:
    """The rules of an op that acts on each token alone; `additive` ones, with f(a + b) = f(a) + f(b), on parts of sums
    too."""
    places = (TOKENS, REDUCED, REPLICATED, *((PARTIAL,) if additive else ()))
    return tuple(Rule("", (place,) * operands, place) for place in places)


def whole_tokens(operands: int) -> tuple[Rule, ...]:
    """The rules of an op that each rank computes as a whole, on all tokens."""
    return tuple(Rule("", (place,) * operands, place) for place in (REDUCED, REPLICATED))


CUT = Rule("cut", (REDUCED,), PARTIAL)
"""An op that reads whole tokens by some of its rows, and adds up over the columns of its last projection (Shoeybi et
al., 2019)."""
