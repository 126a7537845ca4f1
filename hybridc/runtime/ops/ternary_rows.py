"""Ternary weights at 2 bits, in the layout of the public checkpoints: four quarters of the rows in one byte."""

from __future__ import annotations

import torch
from torch import Tensor


def quarter(rows: int) -> int:
    """The rows of bytes that hold so many rows of weights."""
    return -(-rows // 4)


def pack_rows(values: Tensor, parts: tuple[int, ...] = ()) -> Tensor:
    """[rows, in] of -1, 0 and 1 -> uint8 [Σ ⌈part / 4⌉, in].

    `parts` are the rows of projections fused in the weight, each packed for itself. With Q = ⌈part / 4⌉, byte row i
    holds rows i, i + Q, i + 2 Q and i + 3 Q of the part, each value plus 1, from the lowest bits on; rows behind the
    last are 0.
    """
    packed = []
    for part in values.split(parts or values.shape[0]):
        height = quarter(part.shape[0])
        made = torch.full((height, part.shape[1]), 0b01010101, dtype=torch.uint8, device=values.device)
        for n, rows in enumerate(part.split(max(1, height))):
            # 01 stands there: adding the value to it does not carry, since it ends at 00 or 10
            made[: rows.shape[0]] += rows.to(torch.int8).view(torch.uint8) << 2 * n
        packed.append(made)
    return torch.cat(packed) if len(packed) != 1 else packed[0]


def unpack_rows(packed: Tensor, parts: tuple[int, ...], dtype: torch.dtype = torch.int8) -> Tensor:
    """uint8 [Σ ⌈part / 4⌉, in] -> [Σ part, in] of -1, 0 and 1."""
    out = torch.empty(sum(parts), packed.shape[1], dtype=dtype, device=packed.device)
    for part, into in zip(packed.split([quarter(p) for p in parts]), out.split(parts), strict=True):
        for n, rows in enumerate(into.split(max(1, part.shape[0]))):
            rows.copy_(part[: rows.shape[0]] >> 2 * n & 3).sub_(1)
    return out
