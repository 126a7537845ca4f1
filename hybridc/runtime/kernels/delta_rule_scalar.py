"""The gated delta rule within a chunk, where a head has one decay: what comes before the states, and its gradient.

G are the running sums of the decays' logs g within the chunk, to_end those behind a token, k̂ and q̂ keys and queries of
length 1 (q̂ times key_dim^-0.5). With the triangular system (Yang et al., 2024)

    A_ij = β_i exp(G_i - G_j) k̂_i · k̂_j  for j < i,    T = (I + A)⁻¹,

a chunk's new values are N = T (β V) - T (β exp(G) k̂) S and its results y = exp(G) q̂ S + P N, where
P_ij = exp(G_i - G_j) q̂_i · k̂_j for j <= i.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hybridc.runtime.kernels.triangular import PRECISION, unit_lower_inverse

EPS = tl.constexpr(1e-6)
"""Added to the square of a length that keys and queries are divided by."""


@triton.jit
def _decays(g, L: tl.constexpr):
    """For logs g [L] fp32: G, to_end, exp(G_i - G_j) for j <= i, else 0, and the chunk's decay.

    The sums are fp64: differences of near tokens stay exact where the sums are in the thousands.
    """
    at = tl.arange(0, L)
    exact = tl.cumsum(g.to(tl.float64), 0)
    total = tl.sum(g.to(tl.float64), 0)
    sums = exact.to(tl.float32)
    rest = (exact - sums.to(tl.float64)).to(tl.float32)
    gaps = (sums[:, None] - sums[None, :]) + (rest[:, None] - rest[None, :])
    within = tl.exp(tl.where(at[:, None] >= at[None, :], gaps, float("-inf")))
    return sums, (total - exact).to(tl.float32), within, tl.exp(total.to(tl.float32))


@triton.jit
def solve(
    q, k, v, g, beta, chunks, system, scores, keys, values, q_scale, k_scale, decay, q_t, q_h, k_t, k_h, v_t, v_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, L: tl.constexpr, SOLVED: tl.constexpr,
):  # fmt: skip
    """A program for each chunk and head: reads q, k, v, g and β, and writes T [T, H, L] (or with SOLVED reads it), P
    [T, H, L], keys T (β exp(G) k̂) [T, H, K] and values T (β V) [T, H, V], and the factors of q and k towards exp(G) q̂
    and exp(to_end) k̂ [T, H] and the chunk's decay [chunks, H], fp32."""
    chunk = tl.program_id(0).to(tl.int64) // HEADS
    head = tl.program_id(0) % HEADS
    start, end = tl.load(chunks + 2 * chunk).to(tl.int64), tl.load(chunks + 2 * chunk + 1)
    at, col = tl.arange(0, L), tl.arange(0, BK)
    t = start + at
    real, inside = t < end, (t < end)[:, None] & (col < K)[None, :]
    k_tile = tl.load(k + t[:, None] * k_t + head // SHARE * k_h + col[None, :], mask=inside, other=0.0)
    wide = k_tile.to(tl.float32)
    k_unit = tl.rsqrt(tl.sum(wide * wide, 1) + EPS)
    q_tile = tl.load(q + t[:, None] * q_t + head // SHARE * q_h + col[None, :], mask=inside, other=0.0)
    wide = q_tile.to(tl.float32)
    q_unit = tl.rsqrt(tl.sum(wide * wide, 1) + EPS) * (K**-0.5)
    flat = t * HEADS + head
    steps = tl.load(g + flat, mask=real, other=0.0).to(tl.float32)
    rate = tl.load(beta + flat, mask=real, other=0.0).to(tl.float32)
    sums, to_end, within, whole = _decays(steps, L)
    read = tl.exp(sums)
    tl.store(q_scale + flat, q_unit * read, mask=real)
    tl.store(k_scale + flat, k_unit * tl.exp(to_end), mask=real)
    tl.store(decay + chunk * HEADS + head, whole)

    square = flat[:, None] * L + at[None, :]
    within = within * k_unit[None, :]
    seen = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * within * q_unit[:, None]
    tl.store(scores + square, seen.to(scores.dtype.element_ty), mask=real[:, None])
    if SOLVED:
        inverse = tl.load(system + square, mask=real[:, None], other=0.0).to(tl.float32)
    else:
        a = tl.dot(k_tile, tl.trans(k_tile), input_precision=PRECISION) * within * (rate * k_unit)[:, None]
        inverse = unit_lower_inverse(tl.where(at[:, None] > at[None, :], a, 0.0), L)
        tl.store(system + square, inverse.to(system.dtype.element_ty), mask=real[:, None])
    factor = (inverse * (rate * k_unit * read)[None, :]).to(k_tile.dtype)
    found = tl.dot(factor, k_tile, input_precision=PRECISION)
    tl.store(keys + flat[:, None] * K + col[None, :], found.to(keys.dtype.element_ty), mask=inside)
    factor = (inverse * rate[None, :]).to(k_tile.dtype)
    for first in range(0, V, BV):
        col_v = first + tl.arange(0, BV)
        inside_v = real[:, None] & (col_v < V)[None, :]
        v_tile = tl.load(v + t[:, None] * v_t + head * v_h + col_v[None, :], mask=inside_v, other=0.0)
        value = tl.dot(factor, v_tile, input_precision=PRECISION)
        tl.store(values + flat[:, None] * V + col_v[None, :], value.to(values.dtype.element_ty), mask=inside_v)


@triton.jit
def pairs_backward(
    q, k, g, beta, chunks, grad_system, grad_scores, grad_q_read, grad_k_kept, grad_k_read, grad_beta, grad_decay,
    grad_q, grad_k, dg, dbeta, q_t, q_h, k_t, k_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """A program for each chunk and head: from the gradients of A and P [T, H, L], of exp(G) q̂, exp(to_end) k̂ and
    β exp(G) k̂ [T, H, K], of β as far as values have it [T, H] and of the logs of chunks' decays [chunks, H], those of
    q̂ and k̂ [T, H, K] and of g and β [T, H]."""
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
    by_key = tl.zeros((L, L), dtype=tl.float32)
    by_query = tl.zeros((L, L), dtype=tl.float32)
    for first in range(0, K, BK):
        col = first + tl.arange(0, BK)
        inside = real[:, None] & (col < K)[None, :]
        k_tile = tl.load(k_rows + col[None, :], mask=inside, other=0.0)
        k_square += tl.sum(k_tile.to(tl.float32) * k_tile.to(tl.float32), 1)
        by_key = tl.dot(k_tile, tl.trans(k_tile), by_key, input_precision=PRECISION)
        q_tile = tl.load(q_rows + col[None, :], mask=inside, other=0.0)
        q_square += tl.sum(q_tile.to(tl.float32) * q_tile.to(tl.float32), 1)
        by_query = tl.dot(q_tile, tl.trans(k_tile), by_query, input_precision=PRECISION)
    q_unit, k_unit = tl.rsqrt(q_square + EPS) * (K**-0.5), tl.rsqrt(k_square + EPS)
    steps = tl.load(g + flat, mask=real, other=0.0).to(tl.float32)
    rate = tl.load(beta + flat, mask=real, other=0.0).to(tl.float32)
    sums, to_end, within, _ = _decays(steps, L)
    square = flat[:, None] * L + at[None, :]
    moved = tl.load(grad_scores + square, mask=real[:, None], other=0.0).to(tl.float32) * within
    pairs_q = moved.to(k.dtype.element_ty)
    change = moved * by_query * q_unit[:, None] * k_unit[None, :]
    moved = tl.load(grad_system + square, mask=real[:, None], other=0.0).to(tl.float32)
    moved = tl.where(at[:, None] > at[None, :], moved * within, 0.0)
    by_key = moved * by_key * k_unit[:, None] * k_unit[None, :]
    grad_rate = tl.load(grad_beta + flat, mask=real, other=0.0) + tl.sum(by_key, 1)
    change += by_key * rate[:, None]
    grad_sums = tl.sum(change, 1) - tl.sum(change, 0)
    moved *= rate[:, None]
    pairs_k = (moved + tl.trans(moved)).to(k.dtype.element_ty)
    read = tl.exp(sums)
    kept = tl.zeros((L,), dtype=tl.float32)
    for first in range(0, K, BK):
        col = first + tl.arange(0, BK)
        inside = real[:, None] & (col < K)[None, :]
        place = flat[:, None] * K + col[None, :]
        key = tl.load(k_rows + col[None, :], mask=inside, other=0.0).to(tl.float32) * k_unit[:, None]
        query = tl.load(q_rows + col[None, :], mask=inside, other=0.0).to(tl.float32) * q_unit[:, None]
        low = key.to(k.dtype.element_ty)
        total = tl.load(grad_q_read + place, mask=inside, other=0.0).to(tl.float32) * read[:, None]
        grad_sums += tl.sum(total * query, 1)
        total += tl.dot(pairs_q, low, input_precision=PRECISION)
        tl.store(grad_q + place, total.to(grad_q.dtype.element_ty), mask=inside)
        total = tl.load(grad_k_read + place, mask=inside, other=0.0).to(tl.float32) * read[:, None]
        by_read = tl.sum(total * key, 1)
        grad_rate += by_read
        grad_sums += by_read * rate
        part = tl.load(grad_k_kept + place, mask=inside, other=0.0).to(tl.float32) * tl.exp(to_end)[:, None]
        kept += tl.sum(part * key, 1)
        total = total * rate[:, None] + part + tl.dot(pairs_k, low, input_precision=PRECISION)
        total += tl.dot(tl.trans(pairs_q), query.to(k.dtype.element_ty), input_precision=PRECISION)
        tl.store(grad_k + place, total.to(grad_k.dtype.element_ty), mask=inside)
    # what is kept of a key has the decays behind it, so a decay's log is in what is kept of all keys before it
    grad_steps = tl.cumsum(grad_sums, 0, reverse=True) + (tl.cumsum(kept, 0) - kept)
    grad_steps += tl.load(grad_decay + chunk * HEADS + head)
    tl.store(dg + flat, grad_steps.to(dg.dtype.element_ty), mask=real)
    tl.store(dbeta + flat, grad_rate.to(dbeta.dtype.element_ty), mask=real)


@triton.jit
def unit_backward(
    x, grad, dx, tokens, x_t, x_h, scale,
    SHARE: tl.constexpr, GROUPS: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradient of x [T, GROUPS, K] from those of scale x / |x| [T, GROUPS SHARE, K], of which the heads that share
    a group are added. A program for BT tokens and a group."""
    group = tl.program_id(0) % GROUPS
    t = tl.program_id(0).to(tl.int64) // GROUPS * BT + tl.arange(0, BT)
    col = tl.arange(0, BK)
    inside = (t < tokens)[:, None] & (col < K)[None, :]
    tile = tl.load(x + t[:, None] * x_t + group * x_h + col[None, :], mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((BT, BK), dtype=tl.float32)
    for head in range(group * SHARE, group * SHARE + SHARE):
        place = (t[:, None] * (GROUPS * SHARE) + head) * K + col[None, :]
        total += tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
    unit = tl.rsqrt(tl.sum(tile * tile, 1) + EPS)[:, None]
    tile *= unit
    # only what is at right angles to x / |x| changes it
    total = (total - tile * tl.sum(total * tile, 1)[:, None]) * (unit * scale)
    tl.store(dx + (t[:, None] * GROUPS + group) * K + col[None, :], total.to(dx.dtype.element_ty), mask=inside)
