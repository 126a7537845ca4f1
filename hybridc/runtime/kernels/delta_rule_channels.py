"""The gated delta rule within a chunk, where each channel has a decay (KDA): what comes before the states.

The pairs of tokens j < i weigh Σ_c q̂_ic k̂_jc exp(G_ic - G_jc), with G the running sums of the decays' logs: no matrix
product, and exp(-G_jc) alone may be beyond any float. But cut the chunk in halves: for i in the second and j in the
first, the exponent is a sum of logs from the border to i and one from behind j to the border, neither of them above 0,
so those pairs are one product of matrices; and so on within each half. Each pair of a chunk of L tokens belongs to one
of log2(L) levels, that of the highest bit in which their places differ, and a level takes one exponential for each
token and channel. Only logs that a pair needs are added, so near tokens stay exact however strong the decays are.

k̂ and q̂ are keys and queries of length 1, q̂ times key_dim^-0.5. What the results are for: see `delta_rule_scalar`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hybridc.runtime.kernels.delta_rule_scalar import EPS
from hybridc.runtime.kernels.triangular import PRECISION, unit_lower_inverse


@triton.jit
def logs_of(g, t, head, end, first, K: tl.constexpr, HEADS: tl.constexpr, B: tl.constexpr):
    """Logs g [T, HEADS, K] of tokens t in channels from `first` on, [L, B] fp32, 0 where there are none."""
    col = first + tl.arange(0, B)
    inside = (t < end)[:, None] & (col < K)[None, :]
    return tl.load(g + (t[:, None] * HEADS + head) * K + col[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def behind_in_chunk(g, t, head, end, first, K: tl.constexpr, HEADS: tl.constexpr, L: tl.constexpr, B: tl.constexpr):
    """Sums of the logs behind each token t of a chunk, [L, B] fp32."""
    next = logs_of(g, t + 1, head, end, first, K, HEADS, B)
    # the chunk's last token has none behind it, though the next chunk may be there
    return tl.cumsum(tl.where((tl.arange(0, L) < L - 1)[:, None], next, 0.0), 0, reverse=True)


@triton.jit
def in_second(level, L: tl.constexpr):
    """Whether a token is in the second half of its block of 2^(level + 1), [L]."""
    return ((tl.arange(0, L) >> level) & 1) == 1


@triton.jit
def wider(before, behind, level, L: tl.constexpr, B: tl.constexpr):
    """Sums of logs [L, B] within blocks of 2^level tokens, up to a token and behind it -> those within blocks of twice
    the size."""
    at = tl.arange(0, L)[:, None]
    size = 1 << level
    second = in_second(level, L)[:, None]
    # the last token of the block next to the token's own has its whole sum
    last = tl.where(second, (at >> level << level) - 1, at | (2 * size - 1))
    total = tl.gather(before, tl.broadcast_to(last, (L, B)), 0)
    return before + tl.where(second, total, 0.0), behind + tl.where(second, 0.0, total)


@triton.jit
def solve(
    q, k, v, g, beta, chunks, system, scores, keys, values, q_read, k_kept, q_scale, k_scale, decay,
    q_t, q_h, k_t, k_h, v_t, v_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, SOLVED: tl.constexpr,
):  # fmt: skip
    """A program for each chunk and head: reads q, k, v, g and β, and writes T [T, H, L] (or with SOLVED reads it), P
    [T, H, L], keys T (β exp(G) k̂), exp(G) q̂ and exp(to_end) k̂ [T, H, K] and values T (β V) [T, H, V], what makes q̂ of
    q and k̂ of k [T, H] and the chunk's decay [chunks, H, K], fp32. BK channels at a time."""
    chunk = tl.program_id(0).to(tl.int64) // HEADS
    head = tl.program_id(0) % HEADS
    start, end = tl.load(chunks + 2 * chunk).to(tl.int64), tl.load(chunks + 2 * chunk + 1)
    at = tl.arange(0, L)
    t = start + at
    real = t < end
    flat = t * HEADS + head
    q_rows, k_rows = q + t[:, None] * q_t + head // SHARE * q_h, k + t[:, None] * k_t + head // SHARE * k_h
    q_square = tl.zeros((L,), dtype=tl.float32)
    k_square = tl.zeros((L,), dtype=tl.float32)
    own = tl.zeros((L,), dtype=tl.float32)
    # A / β and P, without the lengths of queries and keys
    a = tl.zeros((L, L), dtype=tl.float32)
    p = tl.zeros((L, L), dtype=tl.float32)
    for first in range(0, K, BK):
        col = first + tl.arange(0, BK)
        inside = real[:, None] & (col < K)[None, :]
        query = tl.load(q_rows + col[None, :], mask=inside, other=0.0).to(tl.float32)
        key = tl.load(k_rows + col[None, :], mask=inside, other=0.0).to(tl.float32)
        q_square += tl.sum(query * query, 1)
        k_square += tl.sum(key * key, 1)
        own += tl.sum(query * key, 1)
        logs = logs_of(g, t, head, end, first, K, HEADS, BK)
        before, behind = logs, tl.zeros((L, BK), dtype=tl.float32)
        for level in range(0, LEVELS):
            second = in_second(level, L)
            factor = tl.exp(tl.where(second[:, None], before, behind))
            low_key, low_query = (key * factor).to(k.dtype.element_ty), (query * factor).to(k.dtype.element_ty)
            pairs = tl.where(second, (at >> level) - 1, -1)[:, None] == (at >> level)[None, :]
            if not SOLVED:
                a += tl.where(pairs, tl.dot(low_key, tl.trans(low_key), input_precision=PRECISION), 0.0)
            p += tl.where(pairs, tl.dot(low_query, tl.trans(low_key), input_precision=PRECISION), 0.0)
            before, behind = wider(before, behind, level, L, BK)
    q_unit, k_unit = tl.rsqrt(q_square + EPS) * (K**-0.5), tl.rsqrt(k_square + EPS)
    tl.store(q_scale + flat, q_unit, mask=real)
    tl.store(k_scale + flat, k_unit, mask=real)
    rate = tl.load(beta + flat, mask=real, other=0.0).to(tl.float32)
    square = flat[:, None] * L + at[None, :]
    p += tl.where(at[:, None] == at[None, :], own[:, None], 0.0)
    p *= q_unit[:, None] * k_unit[None, :]
    tl.store(scores + square, p.to(scores.dtype.element_ty), mask=real[:, None])
    if SOLVED:
        inverse = tl.load(system + square, mask=real[:, None], other=0.0).to(tl.float32)
    else:
        inverse = unit_lower_inverse(a * (rate * k_unit)[:, None] * k_unit[None, :], L)
        tl.store(system + square, inverse.to(system.dtype.element_ty), mask=real[:, None])
    low = (inverse * rate[None, :]).to(v.dtype.element_ty)
    for first in range(0, V, BV):
        col = first + tl.arange(0, BV)
        inside = real[:, None] & (col < V)[None, :]
        value = tl.load(v + t[:, None] * v_t + head * v_h + col[None, :], mask=inside, other=0.0)
        solved = tl.dot(low, value, input_precision=PRECISION)
        tl.store(values + flat[:, None] * V + col[None, :], solved.to(values.dtype.element_ty), mask=inside)
    for first in range(0, K, BK):
        col = first + tl.arange(0, BK)
        inside = real[:, None] & (col < K)[None, :]
        place = flat[:, None] * K + col[None, :]
        key = tl.load(k_rows + col[None, :], mask=inside, other=0.0).to(tl.float32) * k_unit[:, None]
        logs = logs_of(g, t, head, end, first, K, HEADS, BK)
        read = tl.exp(tl.cumsum(logs, 0))
        solved = tl.dot(low, (key * read).to(low.dtype), input_precision=PRECISION)
        tl.store(keys + place, solved.to(keys.dtype.element_ty), mask=inside)
        query = tl.load(q_rows + col[None, :], mask=inside, other=0.0).to(tl.float32) * q_unit[:, None]
        tl.store(q_read + place, (query * read).to(q_read.dtype.element_ty), mask=inside)
        kept = key * tl.exp(behind_in_chunk(g, t, head, end, first, K, HEADS, L, BK))
        tl.store(k_kept + place, kept.to(k_kept.dtype.element_ty), mask=inside)
        tl.store(decay + (chunk * HEADS + head) * K + col, tl.exp(tl.sum(logs, 0)), mask=col < K)
