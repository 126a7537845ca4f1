"""Linear attention with a fixed decay for each head: a state space whose decay no token changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hybridc.runtime.ops.ssd import ssd

if TYPE_CHECKING:
    from hybridc.runtime.cache import ScanState
    from hybridc.runtime.context import Context


def alibi_slopes(heads: int, scale: float, device: torch.device) -> Tensor:
    """scale · 2^(-8 (h + 1) / heads) for each head h, [heads] fp32 (Press et al., 2022)."""
    exponents = torch.arange(1, heads + 1, dtype=torch.float32, device=device) * (-8.0 / heads)
    return scale * torch.exp2(exponents)


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    ctx: Context,
    state: ScanState | None = None,
    *,
    chunk: int = 64,
    scan: Callable[..., Any] = ssd,
) -> Tensor:
    """y_t = q_t Σ over s <= t of exp(-slope (t - s)) k_s v_sᵀ, for each head and document (MiniMax-01, 2025).

    q, k and v [B, S, heads, head_dim], slopes [heads] -> [B, S, heads, head_dim] in v's dtype, fp32 inside. This is
    Mamba-2's recurrence with time steps of 1, whose chunked form is used: `scan`, in torch or in Triton.
    """
    steps = torch.ones(v.shape[:3], dtype=torch.float32, device=v.device)
    y: Tensor = scan(v, steps, -slopes, k, q, None, ctx, state, chunk=chunk)
    return y
