"""One token of the gated delta rule for each row: what decoding runs. Bound by reading and writing the states once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.delta_rule_scalar import EPS


@triton.jit
def step(
    q, k, v, g, beta, old, new, y, q_t, q_h, k_t, k_h, v_t, v_h,
    HEADS: tl.constexpr, SHARE: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """A program for each row, head and BV of the state's columns: S ← exp(g) S, S ← S + β k̂ (v - k̂ᵀ S), y = q̂ᵀ S.

    States [B, H, K, V] fp32; `new` may be `old`.
    """
    BLOCKS: tl.constexpr = (V + BV - 1) // BV
    head = tl.program_id(0) // BLOCKS % HEADS
    b = tl.program_id(0).to(tl.int64) // (BLOCKS * HEADS)
    row, col = tl.arange(0, BK), tl.program_id(0) % BLOCKS * BV + tl.arange(0, BV)
    slot = b * HEADS + head
    place = slot * K * V + row[:, None] * V + col[None, :]
    inside = (row < K)[:, None] & (col < V)[None, :]
    state = tl.load(old + place, mask=inside, other=0.0)
    key = tl.load(k + b * k_t + head // SHARE * k_h + row, mask=row < K, other=0.0).to(tl.float32)
    key *= tl.rsqrt(tl.sum(key * key, 0) + EPS)
    query = tl.load(q + b * q_t + head // SHARE * q_h + row, mask=row < K, other=0.0).to(tl.float32)
    query *= tl.rsqrt(tl.sum(query * query, 0) + EPS) * (K**-0.5)
    value = tl.load(v + b * v_t + head * v_h + col, mask=col < V, other=0.0).to(tl.float32)
    if CHANNELS:
        state *= tl.exp(tl.load(g + slot * K + row, mask=row < K, other=0.0).to(tl.float32))[:, None]
    else:
        state *= tl.exp(tl.load(g + slot).to(tl.float32))
    change = (value - tl.sum(state * key[:, None], 0)) * tl.load(beta + slot).to(tl.float32)
    state += key[:, None] * change[None, :]
    tl.store(new + place, state, mask=inside)
    tl.store(y + slot * V + col, tl.sum(state * query[:, None], 0).to(y.dtype.element_ty), mask=col < V)


def run_step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """q and k [B, G, K], v [B, H, V], g [B, H] or [B, H, K], beta [B, H] (g and beta contiguous), states [B, H, K, V]
    fp32 contiguous -> y [B, H, V] in v's dtype; writes `new`, which may be `old`."""
    rows, heads, width = v.shape
    key_dim = k.shape[-1]
    y = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    columns = min(32, max(16, triton.next_power_of_2(width)))
    step[(rows * heads * triton.cdiv(width, columns),)](
        q, k, v, g, beta, old, new, y, *q.stride()[:2], *k.stride()[:2], *v.stride()[:2],
        HEADS=heads, SHARE=heads // k.shape[1], K=key_dim, V=width, BK=triton.next_power_of_2(key_dim), BV=columns,
        CHANNELS=g.dim() == 3, num_warps=4,
    )  # fmt: skip
    return y
