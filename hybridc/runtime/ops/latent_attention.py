"""Multi-head latent attention: keys and values of all heads come from one small latent a token (DeepSeek-V2, 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from hybridc.runtime.ops.attention import attention

if TYPE_CHECKING:
    from hybridc.runtime.cache import LatentState
    from hybridc.runtime.context import Context


def latent_attention(
    q: Tensor,
    latent: Tensor,
    k_shared: Tensor,
    up: Tensor,
    ctx: Context,
    state: LatentState | None = None,
    *,
    value_dim: int,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Attention with keys [up_k latent, k_shared] and values up_v latent, for each head.

    q [B, S, heads, nope_dim + rope_dim], latent [B, S, rank], k_shared [B, S, 1, rope_dim] (the part of the keys that
    all heads share), up [heads (nope_dim + value_dim), rank] (for each head its key rows, then its value rows) ->
    [B, S, heads, value_dim]. The cache holds latents; behind a past, queries are taken into the latents' space instead
    of making keys and values of all that was seen.
    """
    heads = q.shape[2]
    per_head = up.view(heads, -1, up.shape[1])
    if state is None or not any(ctx.past):
        kv = F.linear(latent, up).unflatten(-1, (heads, -1))
        key, value = kv.split((kv.shape[-1] - value_dim, value_dim), dim=-1)
        k = torch.cat((key, k_shared.expand(*key.shape[:-1], -1)), dim=-1)
        if state is not None:
            _fill(state, latent, k_shared, ctx)
        return attention(q, k, value, ctx, None, scale=scale, dropout=dropout)
    up_k, up_v = per_head[:, :-value_dim], per_head[:, -value_dim:]
    nope, rope = q.split((up_k.shape[1], k_shared.shape[-1]), dim=-1)
    q = torch.cat((torch.einsum("bshn,hnr->bshr", nope, up_k), rope), dim=-1)
    k = torch.cat((latent[:, :, None], k_shared), dim=-1)
    y = attention(q, k, latent[:, :, None], ctx, state, scale=scale, dropout=dropout)
    return torch.einsum("bshr,hvr->bshv", y, up_v)


def _fill(state: LatentState, latent: Tensor, k_shared: Tensor, ctx: Context) -> None:
    """Writes the first tokens of all rows into an empty cache."""
    keys = torch.cat((latent[:, :, None], k_shared), dim=-1).transpose(1, 2)
    if ctx.borders is None:
        state.append(keys, keys, 0)
        return
    for n, part in enumerate(keys.split(ctx.lengths, dim=2)):
        state.append(part, part, 0, row=n)
