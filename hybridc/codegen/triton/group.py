"""What a group is made of: named tensors, formulae between them, and what is stored of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["full", "vector", "row", "block"]
"""How a tensor lies over the rows: `full` [rows, width], `vector` [width], `row` [rows, 1], `block` [rows, width over
128], rounded up."""

Form = Literal["", "e4m3_block", "e4m3_row", "int8_row"]
"""What a result is stored as: in the dtype of the first input, or quantized with fp32 factors beside it: E4M3 with one
for each 128 columns or for each row, int8 with one for each row."""

BLOCK = 128
"""Columns that share a factor of the `block` kind."""


@dataclass(frozen=True)
class Input:
    """A tensor that a group reads.

    `parts` are the values that stand side by side in each row of a full tensor [rows, parts width], one after the other
    or with `interleaved` column by column. In a segmented group each row is cut into segments that are rows of their
    own; a `shared` tensor has no segments: all of a row's read the same. Without `gradient` none is computed.
    """

    name: str
    kind: Kind = "full"
    parts: tuple[str, ...] = ()
    interleaved: bool = False
    shared: bool = False
    gradient: bool = True

    @property
    def values(self) -> tuple[str, ...]:
        """The names that formulae use."""
        return self.parts or (self.name,)


@dataclass(frozen=True)
class Output:
    """A result that a group stores, in parts as inputs are. A quantized one has `form`."""

    name: str
    form: Form = ""
    parts: tuple[str, ...] = ()
    interleaved: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The names that formulae use."""
        return self.parts or (self.name,)


@dataclass(frozen=True)
class Group:
    """Operations that become one kernel forward and one backward.

    `body` has one formula a line, `name = expression`. Expressions have + - * / and ** with a whole exponent, numbers,
    values, `constants` (numbers that the caller gives), and the functions of `hybridc.codegen.triton.functions`;
    `sum(e)`, `mean(e)` and `max(e)` over a row stand alone on the right of a formula. `h = cast(e)` rounds to the
    dtype that the result h is stored in, so that what is read on is the same number. That dtype is the one which those
    of the inputs in `like` promote to, of the first one unless given; `width` names the input that is as wide as a row,
    the first one unless given. With `rest`, the columns of a segment behind its parts are handed through.
    `again` is the group that makes a quantized result as it is, of the results before it or, where there are none, of
    all inputs, with the inputs of its own.
    """

    name: str
    doc: str
    inputs: tuple[Input, ...]
    body: str
    outputs: tuple[Output, ...]
    constants: tuple[str, ...] = ()
    segmented: bool = False
    rest: bool = False
    width: str = ""
    like: tuple[str, ...] = ()
    again: str = ""

    @property
    def measured(self) -> Input:
        """The input that says how wide rows are."""
        return next(i for i in self.inputs if i.name == (self.width or self.inputs[0].name))


@dataclass(frozen=True)
class Router:
    """The choice of the k largest scores of each row, and their weights: one kernel forward and one backward.

    `body` makes `score` of `logits` as a group's does. With `bias`, a vector is added to scores for the choice alone.
    """

    name: str
    doc: str
    body: str
    bias: bool = False
