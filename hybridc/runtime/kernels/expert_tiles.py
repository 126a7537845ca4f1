"""Tiles of rows that never cross from one expert's rows to the next one's, found on the device.

`offsets` int32 [experts + 1] are where experts begin among rows that are sorted by expert; the last is where they end.
Tile j of expert e has the number ⌊offsets[e] / block⌋ + e + j. These numbers rise and are never shared, since an expert
of n rows has at most ⌊(offsets[e] + n) / block⌋ - ⌊offsets[e] / block⌋ + 1 tiles. So a grid of `tiles` programs covers
all experts without the host knowing a count, and at most one program for each expert finds nothing to do. Rows behind
the last offset count as one more expert.
"""

from __future__ import annotations

import triton
import triton.language as tl


def tiles(rows: int, experts: int, block: int) -> int:
    """How many tiles of `block` rows may be needed, whatever the offsets are."""
    return rows // block + experts + 1


def lanes(experts: int) -> int:
    """The lanes in which all offsets are looked at at once: the next power of two."""
    return triton.next_power_of_2(experts + 1)


@triton.jit
def expert_of(tile, offsets, experts, rows, BLOCK: tl.constexpr, LANES: tl.constexpr):
    """A tile's expert (or `experts` for rows behind the last offset), its first row, and where the expert ends.

    A tile that does not exist begins at or behind the end."""
    lane = tl.arange(0, LANES)
    begins = tl.load(offsets + lane, mask=lane <= experts, other=0)
    owner = tl.sum(((begins // BLOCK + lane <= tile) & (lane <= experts)).to(tl.int32)) - 1
    begin = tl.load(offsets + owner)
    end = tl.load(offsets + owner + 1, mask=owner < experts, other=0)
    end = tl.where(owner < experts, end, rows)
    return owner, begin + (tile - (begin // BLOCK + owner)) * BLOCK, end
