"""The inverse of a triangular matrix, for kernels that hold one in registers."""

from __future__ import annotations

import triton
import triton.language as tl

PRECISION = tl.constexpr("tf32x3")
"""How products of fp32 matrices run on tensor cores: as three of tf32, which lose next to nothing against fp32."""


@triton.jit
def unit_lower_inverse(a, L: tl.constexpr):
    """(I + a)⁻¹ for a [L, L] fp32 that is zero on and above its diagonal; L is 16, 32 or 64.

    The blocks of 16 on the diagonal are solved by forward substitution, all at once; then two neighbours at a time
    become one: [[A, 0], [C, B]]⁻¹ = [[A⁻¹, 0], [-B⁻¹ C A⁻¹, B⁻¹]]. No power of `a` is taken: those of a matrix with a
    small inverse may be huge.
    """
    row = tl.arange(0, 16)
    diagonal = _blocks(a, 16, L)
    solved = tl.zeros((L // 16, 16, 16), dtype=tl.float32) + tl.where(row[:, None] == row[None, :], 1.0, 0.0)[None]
    for j in range(15):
        # row j is final by now: what it adds to the rows below is taken out of them
        column = tl.sum(tl.where((row == j)[None, None, :], diagonal, 0.0), axis=2)
        final = tl.sum(tl.where((row == j)[None, :, None], solved, 0.0), axis=1)
        solved -= column[:, :, None] * final[:, None, :]
    if L >= 32:
        solved = _paired(solved, a, 16, L)
    if L >= 64:
        solved = _paired(solved, a, 32, L)
    return tl.reshape(solved, (L, L))


@triton.jit
def _blocks(a, N: tl.constexpr, L: tl.constexpr):
    """The N x N blocks on the diagonal of a [L, L]: [L / N, N, N]."""
    block = tl.arange(0, L // N)
    same = (block[:, None] == block[None, :])[:, None, :, None]
    return tl.sum(tl.where(same, tl.reshape(a, (L // N, N, L // N, N)), 0.0), axis=2)


@triton.jit
def _paired(solved, a, N: tl.constexpr, L: tl.constexpr):
    """Inverses [L / N, N, N] of the blocks on the diagonal of I + a -> those of the blocks of twice the size."""
    PAIRS: tl.constexpr = L // (2 * N)
    first, second = tl.split(tl.permute(tl.reshape(solved, (PAIRS, 2, N, N)), (0, 2, 3, 1)))
    quarters = tl.permute(tl.reshape(_blocks(a, 2 * N, L), (PAIRS, 2, N, 2, N)), (0, 2, 4, 3, 1))
    _, lower = tl.split(quarters)  # by row
    corner, _ = tl.split(lower)  # by column
    corner = -tl.dot(tl.dot(second, corner, input_precision=PRECISION), first, input_precision=PRECISION)
    left = tl.join(first, corner)  # [PAIRS, N, N, half of the row]
    right = tl.join(tl.zeros_like(second), second)
    whole = tl.join(left, right)  # [PAIRS, row, column, half of the row, half of the column]
    return tl.reshape(tl.permute(whole, (0, 3, 1, 4, 2)), (PAIRS, 2 * N, 2 * N))
