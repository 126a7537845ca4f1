"""How Mamba-2's kernels cut documents into chunks, and what they all read of one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from hybridc.runtime.context import Context

LONGEST = 256
"""Tokens of the longest chunk: what states cost in memory falls with it, what the squares of weights cost rises."""


def block(width: int, most: int) -> int:
    """Columns of a tile over `width` channels: a power of two that tensor cores take."""
    return max(16, min(most, triton.next_power_of_2(width)))


@dataclass
class Chunks:
    """`count` chunks of up to `length` tokens (a power of two) of `documents` documents, in order. `dtype` is that of
    x, b and c, on which the tiles depend: the wider it is, the fewer of its numbers fit into registers.

    Plain rows of `tokens` tokens have `per_row` chunks each. Of a packed row `spans` [count, 2] has each chunk's first
    token and end, and `first` [documents + 1] each document's first chunk; both int32.
    """

    length: int
    dtype: torch.dtype
    count: int
    documents: int
    tokens: int
    per_row: int = 0
    spans: Tensor | None = None
    first: Tensor | None = None

    @staticmethod
    def make(x: Tensor, chunk: int, ctx: Context | None) -> Chunks:
        """For x [B, S, ...]: chunks of `chunk` tokens at most, and none longer than the longest document needs."""
        rows, tokens = x.shape[:2]
        borders = None if ctx is None else ctx.borders
        longest = tokens if borders is None else max(b - a for a, b in pairwise(borders))
        below = 1 << (min(chunk, LONGEST).bit_length() - 1)
        length = max(16, min(below, triton.next_power_of_2(max(1, longest))))
        if borders is None:
            per_row = triton.cdiv(tokens, length)
            return Chunks(length, x.dtype, rows * per_row, rows, tokens, per_row)
        return ctx.plan(("kernels.ssd", length, x.dtype), lambda: _packed(borders, length, x.dtype, x.device))

    @property
    def square(self) -> int:
        """Rows and columns of one square of weights."""
        return min(self.length, 64 if self.dtype.itemsize == 2 else 32)

    @property
    def squares(self) -> int:
        """Squares in a chunk's height."""
        return self.length // self.square

    def columns(self, width: int) -> int:
        """Columns of a tile over `width` channels of x or y."""
        return block(width, 64 if self.dtype.itemsize == 2 else 32)

    def held(self, width: int) -> int:
        """Columns of a tile over `width` numbers of b or c: all, where one is held for all others."""
        # states are bf16 beside bf16, else fp32
        return block(width, {torch.bfloat16: 256, torch.float16: 128}.get(self.dtype, 32))

    def places(self) -> tuple[Tensor | None, int, int]:
        """What `place` needs."""
        return self.spans, self.per_row, self.tokens


def _packed(borders: list[int], length: int, dtype: torch.dtype, device: torch.device) -> Chunks:
    spans, first = [], [0]
    for start, end in pairwise(borders):
        spans += [(at, min(at + length, end)) for at in range(start, end, length)]
        first.append(len(spans))
    on_device = {"dtype": torch.int32, "device": device}
    table = torch.tensor(spans, **on_device)
    return Chunks(length, dtype, len(spans), len(first) - 1, borders[-1], 0, table, torch.tensor(first, **on_device))


@triton.jit
def place(spans, per_row, tokens, chunk, LENGTH: tl.constexpr):
    """A chunk's row, its first token there, and how many it has."""
    if spans is None:
        row = chunk // per_row
        start = (chunk % per_row) * LENGTH
        count = tl.minimum(tokens - start, LENGTH)
    else:
        row = chunk * 0
        start = tl.load(spans + 2 * chunk).to(tl.int64)
        count = tl.load(spans + 2 * chunk + 1) - start
    return row, start, count.to(tl.int32)


@triton.jit
def of_document(first, per_row, document):
    """The first chunk of a document, and that of the next one."""
    if first is None:
        return document * per_row, (document + 1) * per_row
    else:
        return tl.load(first + document).to(tl.int64), tl.load(first + document + 1).to(tl.int64)


@triton.jit
def tile(base, rows, count, stride, columns, WIDTH: tl.constexpr):
    """Rows below `count` and columns below WIDTH of what lies at `base`, zeros elsewhere."""
    mask = (rows < count)[:, None]
    if tl.constexpr(WIDTH) % columns.shape[0] != 0:
        mask = mask & (columns < WIDTH)[None, :]
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=mask, other=0.0)


@triton.jit
def put(base, rows, count, stride, columns, value, WIDTH: tl.constexpr):
    """Writes where `tile` reads."""
    mask = (rows < count)[:, None]
    if tl.constexpr(WIDTH) % columns.shape[0] != 0:
        mask = mask & (columns < WIDTH)[None, :]
    tl.store(base + rows[:, None] * stride + columns[None, :], value.to(base.dtype.element_ty), mask=mask)


@triton.jit
def products(
    left, i, count_i, stride_i, right, j, count_j, stride_j,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """left_i · right_j, [i, j] fp32, of rows of WIDTH numbers; multiplied in the right one's dtype."""
    total = tl.zeros((i.shape[0], j.shape[0]), tl.float32)
    for low in range(0, WIDTH, BLOCK):
        columns = low + tl.arange(0, BLOCK)
        u = tile(left, i, count_i, stride_i, columns, WIDTH)
        v = tile(right, j, count_j, stride_j, columns, WIDTH)
        total = tl.dot(u.to(v.dtype), tl.trans(v), total, input_precision=PRECISION)
    return total


@triton.jit
def decays(times, plane, at):
    """The running sum of dt a up to each token `at`, in two parts: what a float32 holds of it, and the rest.

    `times` are three planes of [chunks, heads, LENGTH]: dt, and the two. Where a chunk has no token, dt is 0."""
    return tl.load(times + plane + at), tl.load(times + 2 * plane + at)


@triton.jit
def gaps(i, sums_i, rest_i, j, sums_j, rest_j):
    """exp of the sum from j on to i where j is not behind i, else 0; near ones as exact as if the sums began there."""
    gap = (sums_i[:, None] - sums_j[None, :]) + (rest_i[:, None] - rest_j[None, :])
    return tl.exp(tl.where(i[:, None] >= j[None, :], gap, float("-inf")))
