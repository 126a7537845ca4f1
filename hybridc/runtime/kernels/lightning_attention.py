"""`hybridc.runtime.ops.lightning_attention` for GPUs: Mamba-2's scan with time steps of 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hybridc.runtime.kernels.ssd import ssd

if TYPE_CHECKING:
    from hybridc.runtime.cache import ScanState
    from hybridc.runtime.context import Context


def lightning_attention(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, ctx: Context, state: ScanState | None = None, *, chunk: int = 64
) -> Tensor:
    """y_t = q_t Σ over s <= t of exp(-slope (t - s)) k_s v_sᵀ, for each head and document (MiniMax-01, 2025).

    q, k and v [B, S, heads, head_dim], slopes [heads] -> [B, S, heads, head_dim] in v's dtype.
    """
    steps = torch.ones(v.shape[:3], dtype=torch.float32, device=v.device)
    y = ssd(v, steps, -slopes, k, q, None, ctx, state, chunk=chunk)
    return y  # type: ignore[return-value]
