"""The gradient of what `delta_rule_channels` makes of a chunk."""

from __future__ import annotations

import triton
import triton.language as tl

from hybridc.runtime.kernels.delta_rule_channels import in_second, logs_of, wider
from hybridc.runtime.kernels.triangular import PRECISION


@triton.jit
def pairs_backward(
    q, k, g, beta, q_scale, k_scale, chunks, grad_system, grad_scores, grad_q_read, grad_k_kept, grad_k_read, grad_beta,
    grad_decay, grad_q, grad_k, dg, dbeta, q_t, q_h, k_t, k_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, L: tl.constexpr,
    LEVELS: tl.constexpr,
):  # fmt: skip
    """A program for each chunk and head: from the gradients of A and P [T, H, L], of exp(G) q̂, exp(to_end) k̂ and
    β exp(G) k̂ [T, H, K], of β as far as values have it [T, H] and of the logs of chunks' decays [chunks, H, K], those
    of q̂, k̂ and g [T, H, K] and of β [T, H]. BK channels at a time."""
    chunk = tl.program_id(0).to(tl.int64) // HEADS
    head = tl.program_id(0) % HEADS
    start, end = tl.load(chunks + 2 * chunk).to(tl.int64), tl.load(chunks + 2 * chunk + 1)
    t = start + tl.arange(0, L)
    real = t < end
    flat = t * HEADS + head
    q_unit = tl.load(q_scale + flat, mask=real, other=0.0)
    k_unit = tl.load(k_scale + flat, mask=real, other=0.0)
    rate = tl.load(beta + flat, mask=real, other=0.0).to(tl.float32)
    grad_rate = tl.load(grad_beta + flat, mask=real, other=0.0)
    at = tl.arange(0, L)
    square = flat[:, None] * L + at[None, :]
    below = at[:, None] > at[None, :]
    grad_p = tl.load(grad_scores + square, mask=real[:, None], other=0.0)
    own = tl.sum(tl.where(at[:, None] == at[None, :], grad_p.to(tl.float32), 0.0), 1)[:, None]
    grad_p = tl.where(below, grad_p, 0.0)
    # a token is on one side of all its pairs of a level: a row of A in the second half, where β comes later, or a
    # column in the first
    grad_a = tl.load(grad_system + square, mask=real[:, None], other=0.0).to(tl.float32)
    grad_a = tl.where(below, grad_a, 0.0)
    grad_a = (grad_a + tl.trans(grad_a * rate[:, None])).to(k.dtype.element_ty)
    for first in range(0, K, BK):
        col = first + tl.arange(0, BK)
        inside = real[:, None] & (col < K)[None, :]
        place = flat[:, None] * K + col[None, :]
        query = tl.load(q + t[:, None] * q_t + head // SHARE * q_h + col[None, :], mask=inside, other=0.0)
        query = query.to(tl.float32) * q_unit[:, None]
        key = tl.load(k + t[:, None] * k_t + head // SHARE * k_h + col[None, :], mask=inside, other=0.0)
        key = key.to(tl.float32) * k_unit[:, None]
        logs = logs_of(g, t, head, end, first, K, HEADS, BK)
        sum_q, sum_k = own * key, own * query
        grad_sums = tl.zeros((L, BK), dtype=tl.float32)
        rates = tl.zeros((L, BK), dtype=tl.float32)
        before, behind = logs, tl.zeros((L, BK), dtype=tl.float32)
        for level in range(0, LEVELS):
            second = in_second(level, L)[:, None]
            factor = tl.exp(tl.where(second, before, behind))
            low_key, low_query = (key * factor).to(k.dtype.element_ty), (query * factor).to(k.dtype.element_ty)
            pairs = ((at >> level) ^ 1)[:, None] == (at >> level)[None, :]
            moved = tl.dot(tl.where(pairs, grad_a, 0.0), low_key, input_precision=PRECISION) * factor
            rates += tl.where(second, moved * key, 0.0)
            moved *= tl.where(second, rate[:, None], 1.0)
            part = tl.where(pairs, grad_p, 0.0)
            moved += tl.dot(tl.trans(part), low_query, input_precision=PRECISION) * factor
            sum_k += moved
            # the exponent has the logs up to a token of the second half, and less of them up to one of the first
            grad_sums += tl.where(second, moved, -moved) * key
            moved = tl.dot(part, low_key, input_precision=PRECISION) * factor
            sum_q += moved
            grad_sums += moved * query
            before, behind = wider(before, behind, level, L, BK)
        # by now the sums are those of the whole chunk
        read = tl.exp(before)
        moved = tl.load(grad_q_read + place, mask=inside, other=0.0).to(tl.float32) * read
        sum_q += moved
        grad_sums += moved * query
        moved = tl.load(grad_k_read + place, mask=inside, other=0.0).to(tl.float32) * read
        grad_rate += tl.sum(rates + moved * key, 1)
        moved *= rate[:, None]
        sum_k += moved
        grad_sums += moved * key
        moved = tl.load(grad_k_kept + place, mask=inside, other=0.0).to(tl.float32)
        moved *= tl.exp(behind)
        sum_k += moved
        # a kept key's exponent has the logs behind the token, so a log is in those of all tokens before it
        kept = moved * key
        grad_steps = tl.cumsum(grad_sums, 0, reverse=True) + (tl.cumsum(kept, 0) - kept)
        grad_steps += tl.load(grad_decay + (chunk * HEADS + head) * K + col, mask=col < K, other=0.0)[None, :]
        tl.store(dg + place, grad_steps.to(dg.dtype.element_ty), mask=inside)
        tl.store(grad_q + place, sum_q.to(grad_q.dtype.element_ty), mask=inside)
        tl.store(grad_k + place, sum_k.to(grad_k.dtype.element_ty), mask=inside)
    tl.store(dbeta + flat, grad_rate.to(dbeta.dtype.element_ty), mask=real)
