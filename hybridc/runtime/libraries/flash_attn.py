"""flash-attn (Dao): exact attention in CUDA, in bf16 and fp16, for heads of up to 256 channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hybridc.runtime.errors import UsageError
from hybridc.runtime.libraries.documents import offsets
from hybridc.runtime.libraries.missing import missing

try:
    from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
except ImportError as error:
    raise missing("flash-attn", error) from error

if TYPE_CHECKING:
    from hybridc.runtime.cache import KVState
    from hybridc.runtime.context import Context


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ctx: Context,
    state: KVState | None = None,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`hybridc.runtime.ops.attention` with flash-attn's kernels: softmax(scale q kᵀ) v over the tokens up to and
    including each one, the last `window` of them if that is given.

    Shapes are those of the op, with values as wide as keys. The library's causal mask takes the queries for the last of
    the keys' tokens, as a cache needs it. Raises UsageError for `sinks`.
    """
    if sinks is not None:
        raise UsageError("flash-attn's softmax has no sinks", "compile without flash_attn")
    options = {
        "softmax_scale": scale,
        "causal": True,
        "window_size": (-1, -1) if window is None else (window - 1, 0),
        "softcap": 0.0 if softcap is None else softcap,
    }
    if ctx.borders is not None:
        return _documents(q, k, v, ctx, state, dropout, options)
    if state is None:
        return flash_attn_func(q, k, v, dropout_p=dropout, **options)
    if min(ctx.past) == max(ctx.past):
        seen = state.append(k.transpose(1, 2), v.transpose(1, 2), ctx.past[0])
        k, v = (t.transpose(1, 2) for t in seen)
        return flash_attn_func(q, k, v, dropout_p=dropout, **options)
    return _ragged(q, k, v, ctx, state, dropout, options)


def _documents(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState | None, dropout: float, options: dict[str, object]
) -> Tensor:  # fmt: skip
    """A packed row, all documents in one call; with a cache, their keys and values are put one behind the other."""
    starts = offsets(ctx, torch.int32, q.device)
    key_starts, longest = starts, max(ctx.lengths)
    k, v = k[0], v[0]
    if state is not None:
        parts = []
        for n, (keys, values) in enumerate(zip(k.split(ctx.lengths), v.split(ctx.lengths), strict=True)):
            if ctx.lengths[n]:
                new = (t.transpose(0, 1)[None] for t in (keys, values))
                keys, values = (t[0].transpose(0, 1) for t in state.append(*new, ctx.past[n], row=n))
            parts.append((keys, values))
        k, v = (torch.cat(t) for t in zip(*parts, strict=True))
        key_starts = ctx.plan("key offsets", lambda: _sums([len(keys) for keys, _ in parts], q.device))
        longest = max(len(keys) for keys, _ in parts)
    y = flash_attn_varlen_func(q[0], k, v, starts, key_starts, max(ctx.lengths), longest, dropout_p=dropout, **options)
    return y[None]


def _ragged(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState, dropout: float, options: dict[str, object]
) -> Tensor:  # fmt: skip
    """Rows of S new tokens behind pasts of different length."""
    rows, length = q.shape[:2]
    totals = [past + length for past in ctx.past]

    def places() -> tuple[Tensor, Tensor, Tensor]:
        """The row and the place of each new token, and what rows hold then."""
        past = torch.tensor(ctx.past, device=q.device)[:, None]
        row = torch.arange(rows, device=q.device)[:, None]
        return row, past + torch.arange(length, device=q.device), torch.tensor(totals, device=q.device)

    row, place, held = ctx.plan("flash-attn places", places)
    seen = state.append_ragged(k.transpose(1, 2), v.transpose(1, 2), row, place, max(totals))
    k, v = (t.transpose(1, 2) for t in seen)
    if not torch.is_grad_enabled() and not dropout:
        return flash_attn_with_kvcache(q, k, v, cache_seqlens=held.int(), **options)
    # what a row holds, one row behind the other: the call for caches has neither gradients nor dropout
    filled = torch.arange(max(totals), device=q.device) < held[:, None]
    starts = _sums([length] * rows, q.device)
    y = flash_attn_varlen_func(
        q.flatten(0, 1),
        k[filled],
        v[filled],
        starts,
        _sums(totals, q.device),
        length,
        max(totals),
        dropout_p=dropout,
        **options,
    )
    return y.unflatten(0, (rows, length))


def _sums(lengths: list[int], device: torch.device) -> Tensor:
    """Where parts of these lengths start when they are put one behind the other, and the end: int32."""
    return torch.tensor([0, *lengths], device=device).cumsum(0).int()
