"""The gated delta rule between chunks: the states, what is read of them, and their gradients.

With W = `keys` and U = `values` that a chunk's triangular system gave, queries Q and keys K as they read the state
before and are kept for the one behind, P the scores within the chunk and d its decay:

    N = U - W S,    y = Q S + P N,    S ← d S + Kᵀ N.

One decay a head: Q and K are q and k times a factor for each token, `q_scale` and `k_scale`. One a channel (CHANNELS):
they are stored as such. The states are fp32 in registers; they are multiplied, and kept for each chunk, in the data's
dtype.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hybridc.runtime.kernels.triangular import PRECISION


@triton.jit
def _tile(x, t, head, end, width, first, HEADS: tl.constexpr, B: tl.constexpr):
    """Rows t of x [T, HEADS, width], from channel `first` on, as [L, B]."""
    col = first + tl.arange(0, B)
    inside = (t < end)[:, None] & (col < width)[None, :]
    return tl.load(x + (t[:, None] * HEADS + head) * width + col[None, :], mask=inside, other=0.0)


@triton.jit
def _keep(x, tile, t, head, end, width, first, HEADS: tl.constexpr, B: tl.constexpr):
    """Writes what `_tile` reads."""
    col = first + tl.arange(0, B)
    inside = (t < end)[:, None] & (col < width)[None, :]
    tl.store(x + (t[:, None] * HEADS + head) * width + col[None, :], tile.to(x.dtype.element_ty), mask=inside)


@triton.jit
def _state(x, slot, first, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    """State number `slot` of x [..., K, V], from column `first` on, as [BK, BV]."""
    row, col = tl.arange(0, BK), first + tl.arange(0, BV)
    inside = (row < K)[:, None] & (col < V)[None, :]
    return tl.load(x + slot * K * V + row[:, None] * V + col[None, :], mask=inside, other=0.0)


@triton.jit
def pass_states(
    k, keys, values, k_scale, decay, borders, firsts, initial, states, news, last, k_t, k_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    L: tl.constexpr, CHANNELS: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """A program for each document, head and BV of the state's columns, which goes from chunk to chunk: reads W, U and k
    [T, H, ...], writes N [T, H, V], the state before each chunk [chunks, H, K, V] and the last one [documents, H, K,
    V]."""
    BLOCKS: tl.constexpr = (V + BV - 1) // BV
    first = tl.program_id(0) % BLOCKS * BV
    head = tl.program_id(0) // BLOCKS % HEADS
    document = tl.program_id(0).to(tl.int64) // (BLOCKS * HEADS)
    start, end = tl.load(borders + document).to(tl.int64), tl.load(borders + document + 1)
    chunk, chunks = tl.load(firsts + document), tl.load(firsts + document + 1)
    at, row, col = tl.arange(0, L), tl.arange(0, BK), first + tl.arange(0, BV)
    square = row[:, None] * V + col[None, :]
    inside = (row < K)[:, None] & (col < V)[None, :]
    place = (document * HEADS + head) * K * V + square
    state = tl.zeros((BK, BV), dtype=tl.float32)
    if INITIAL:
        state = tl.load(initial + place, mask=inside, other=0.0)
    for n in range(0, chunks - chunk):
        t = start + n * L + at
        slot = (chunk + n).to(tl.int64) * HEADS + head
        low = state.to(keys.dtype.element_ty)
        tl.store(states + slot * K * V + square, low, mask=inside)
        new = _tile(values, t, head, end, V, first, HEADS, BV).to(tl.float32)
        new -= tl.dot(_tile(keys, t, head, end, K, 0, HEADS, BK), low, input_precision=PRECISION)
        _keep(news, new, t, head, end, V, first, HEADS, BV)
        if CHANNELS:
            kept = _tile(k, t, head, end, K, 0, HEADS, BK)
            state *= tl.load(decay + slot * K + row, mask=row < K, other=0.0)[:, None]
        else:
            real = t < end
            kept = tl.load(
                k + t[:, None] * k_t + head // SHARE * k_h + row[None, :],
                mask=real[:, None] & (row < K)[None, :],
                other=0.0,
            )
            new *= tl.load(k_scale + t * HEADS + head, mask=real, other=0.0)[:, None]
            state *= tl.load(decay + slot)
        state += tl.dot(tl.trans(kept), new.to(kept.dtype), input_precision=PRECISION)
    tl.store(last + place, state, mask=inside)


@triton.jit
def outputs(
    q, q_scale, scores, states, news, y, chunks, q_t, q_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    L: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """y = Q S + P N for a chunk, head and BV of the values' channels."""
    BLOCKS: tl.constexpr = (V + BV - 1) // BV
    first = tl.program_id(0) % BLOCKS * BV
    head = tl.program_id(0) // BLOCKS % HEADS
    chunk = tl.program_id(0).to(tl.int64) // (BLOCKS * HEADS)
    start, end = tl.load(chunks + 2 * chunk).to(tl.int64), tl.load(chunks + 2 * chunk + 1)
    at, row, col = tl.arange(0, L), tl.arange(0, BK), first + tl.arange(0, BV)
    t = start + at
    state = tl.load(
        states + (chunk * HEADS + head) * K * V + row[:, None] * V + col[None, :],
        mask=(row < K)[:, None] & (col < V)[None, :],
        other=0.0,
    )
    if CHANNELS:
        out = tl.dot(_tile(q, t, head, end, K, 0, HEADS, BK), state, input_precision=PRECISION)
    else:
        real = t < end
        inside = real[:, None] & (row < K)[None, :]
        query = tl.load(q + t[:, None] * q_t + head // SHARE * q_h + row[None, :], mask=inside, other=0.0)
        out = tl.dot(query, state, input_precision=PRECISION)
        out *= tl.load(q_scale + t * HEADS + head, mask=real, other=0.0)[:, None]
    weights = _tile(scores, t, head, end, L, 0, HEADS, L)
    out += tl.dot(weights, _tile(news, t, head, end, V, first, HEADS, BV), input_precision=PRECISION)
    _keep(y, out, t, head, end, V, first, HEADS, BV)


@triton.jit
def states_backward(
    q, k, keys, scores, q_scale, k_scale, decay, grad, grad_last, borders, firsts, grad_states, grad_news, grad_initial,
    q_t, q_h, k_t, k_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    L: tl.constexpr, CHANNELS: tl.constexpr, LAST: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """`pass_states` backwards: from the gradients of y and of the last states those of N [T, H, V], of the state behind
    each chunk [chunks, H, K, V] and of the initial ones. dN = Pᵀ dy + K dS, dS ← d dS + Qᵀ dy - Wᵀ dN."""
    BLOCKS: tl.constexpr = (V + BV - 1) // BV
    first = tl.program_id(0) % BLOCKS * BV
    head = tl.program_id(0) // BLOCKS % HEADS
    document = tl.program_id(0).to(tl.int64) // (BLOCKS * HEADS)
    start, end = tl.load(borders + document).to(tl.int64), tl.load(borders + document + 1)
    chunk, chunks = tl.load(firsts + document), tl.load(firsts + document + 1)
    at, row, col = tl.arange(0, L), tl.arange(0, BK), first + tl.arange(0, BV)
    square = row[:, None] * V + col[None, :]
    inside = (row < K)[:, None] & (col < V)[None, :]
    place = (document * HEADS + head) * K * V + square
    state = tl.zeros((BK, BV), dtype=tl.float32)
    if LAST:
        state = tl.load(grad_last + place, mask=inside, other=0.0)
    for back in range(0, chunks - chunk):
        n = chunks - chunk - 1 - back
        t = start + n * L + at
        slot = (chunk + n).to(tl.int64) * HEADS + head
        low = state.to(keys.dtype.element_ty)
        tl.store(grad_states + slot * K * V + square, low, mask=inside)
        grad_tile = _tile(grad, t, head, end, V, first, HEADS, BV)
        if CHANNELS:
            new = tl.dot(_tile(k, t, head, end, K, 0, HEADS, BK), low, input_precision=PRECISION)
            read = _tile(q, t, head, end, K, 0, HEADS, BK)
            state *= tl.load(decay + slot * K + row, mask=row < K, other=0.0)[:, None]
            state += tl.dot(tl.trans(read), grad_tile, input_precision=PRECISION)
        else:
            real = t < end
            own = real[:, None] & (row < K)[None, :]
            kept = tl.load(k + t[:, None] * k_t + head // SHARE * k_h + row[None, :], mask=own, other=0.0)
            new = tl.dot(kept, low, input_precision=PRECISION)
            new *= tl.load(k_scale + t * HEADS + head, mask=real, other=0.0)[:, None]
            read = tl.load(q + t[:, None] * q_t + head // SHARE * q_h + row[None, :], mask=own, other=0.0)
            scaled = grad_tile.to(tl.float32) * tl.load(q_scale + t * HEADS + head, mask=real, other=0.0)[:, None]
            state *= tl.load(decay + slot)
            state += tl.dot(tl.trans(read), scaled.to(read.dtype), input_precision=PRECISION)
        weights = _tile(scores, t, head, end, L, 0, HEADS, L)
        new += tl.dot(tl.trans(weights), grad_tile, input_precision=PRECISION)
        _keep(grad_news, new, t, head, end, V, first, HEADS, BV)
        keys_tile = _tile(keys, t, head, end, K, 0, HEADS, BK)
        state -= tl.dot(tl.trans(keys_tile), new.to(keys_tile.dtype), input_precision=PRECISION)
    if INITIAL:
        tl.store(grad_initial + place, state, mask=inside)


@triton.jit
def reads_backward(
    v, beta, system, keys, values, news, states, decay, grad, grad_news, grad_states, chunks,
    grad_q_read, grad_k_kept, grad_k_read, dv, grad_system, grad_scores, grad_beta, grad_decay, v_t, v_h,
    HEADS: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, L: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """A program for each chunk and head: the gradients of all that the chunk's system and states were made of.

    dQ = dy Sᵀ, dK = N dSᵀ, dP = dy Nᵀ. The gradients of β V and β exp(G) k̂ are Y = Tᵀ dN and Z = -Y Sᵀ, and that of A
    is -Y Uᵀ - Z Wᵀ below the diagonal. Written: dQ, dK and Z [T, H, K], dV [T, H, V], dA and dP [T, H, L] (with
    numbers where A and P are zero by definition), V's part of dβ [T, H] fp32 and the gradients of the logs of the
    chunks' decays."""
    head = tl.program_id(0) % HEADS
    chunk = tl.program_id(0).to(tl.int64) // HEADS
    start, end = tl.load(chunks + 2 * chunk).to(tl.int64), tl.load(chunks + 2 * chunk + 1)
    at, row = tl.arange(0, L), tl.arange(0, BK)
    t = start + at
    real = t < end
    slot = chunk * HEADS + head
    rate = tl.load(beta + t * HEADS + head, mask=real, other=0.0).to(tl.float32)
    turned = tl.trans(_tile(system, t, head, end, L, 0, HEADS, L))
    grad_q = tl.zeros((L, BK), dtype=tl.float32)
    grad_k = tl.zeros((L, BK), dtype=tl.float32)
    grad_p = tl.zeros((L, L), dtype=tl.float32)
    whole = tl.zeros((BK,), dtype=tl.float32)
    for first in range(0, V, BV):
        state = _state(states, slot, first, K, V, BK, BV)
        grad_state = _state(grad_states, slot, first, K, V, BK, BV)
        whole += tl.sum(state.to(tl.float32) * grad_state.to(tl.float32), 1)
        grad_tile = _tile(grad, t, head, end, V, first, HEADS, BV)
        grad_q = tl.dot(grad_tile, tl.trans(state), grad_q, input_precision=PRECISION)
        new = _tile(news, t, head, end, V, first, HEADS, BV)
        grad_p = tl.dot(grad_tile, tl.trans(new), grad_p, input_precision=PRECISION)
        grad_k = tl.dot(new, tl.trans(grad_state), grad_k, input_precision=PRECISION)
    _keep(grad_q_read, grad_q, t, head, end, K, 0, HEADS, BK)
    _keep(grad_k_kept, grad_k, t, head, end, K, 0, HEADS, BK)
    _keep(grad_scores, grad_p, t, head, end, L, 0, HEADS, L)
    if CHANNELS:
        whole *= tl.load(decay + slot * K + row, mask=row < K, other=0.0)
        tl.store(grad_decay + slot * K + row, whole, mask=row < K)
    else:
        tl.store(grad_decay + slot, tl.sum(whole, 0) * tl.load(decay + slot))
    # both are subtracted
    grad_read = tl.zeros((L, BK), dtype=tl.float32)
    grad_a = tl.zeros((L, L), dtype=tl.float32)
    grad_rate = tl.zeros((L,), dtype=tl.float32)
    for first in range(0, V, BV):
        col = first + tl.arange(0, BV)
        grad_new = _tile(grad_news, t, head, end, V, first, HEADS, BV)
        solved = tl.dot(turned, grad_new, input_precision=PRECISION)
        _keep(dv, solved * rate[:, None], t, head, end, V, first, HEADS, BV)
        inside = real[:, None] & (col < V)[None, :]
        value = tl.load(v + t[:, None] * v_t + head * v_h + col[None, :], mask=inside, other=0.0)
        grad_rate += tl.sum(solved * value.to(tl.float32), 1)
        low = solved.to(value.dtype)
        state = _state(states, slot, first, K, V, BK, BV)
        grad_read = tl.dot(low, tl.trans(state), grad_read, input_precision=PRECISION)
        value = _tile(values, t, head, end, V, first, HEADS, BV)
        grad_a = tl.dot(low, tl.trans(value), grad_a, input_precision=PRECISION)
    tl.store(grad_beta + t * HEADS + head, grad_rate, mask=real)
    _keep(grad_k_read, -grad_read, t, head, end, K, 0, HEADS, BK)
    keys_tile = _tile(keys, t, head, end, K, 0, HEADS, BK)
    grad_a -= tl.dot(grad_read.to(keys_tile.dtype), tl.trans(keys_tile), input_precision=PRECISION)
    _keep(grad_system, -grad_a, t, head, end, L, 0, HEADS, L)
