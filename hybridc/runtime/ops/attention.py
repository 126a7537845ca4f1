"""Causal attention over documents, with windows and a cache of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from hybridc.runtime.cache import KVState
    from hybridc.runtime.context import Context

QUERY_BLOCK = 128
"""Queries of a windowed attention are handled in blocks of the window's size, and of this many at least."""


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ctx: Context,
    state: KVState | None = None,
    *,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """softmax(scale q kᵀ) v over the tokens up to and including each one, the last `window` of them if that is given.

    q [B, S, heads, head_dim], k and v [B, S, kv_heads, head_dim]; query head h reads key head h // (heads / kv_heads)
    -> [B, S, heads, head_dim].
    """
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if ctx.borders is not None:
        y = _documents(q, k, v, ctx, state, scale, window)
    elif state is None:
        y = _fresh(q, k, v, scale, window)
    else:
        y = _cached(q, k, v, ctx.past, state, scale, window)
    return y.transpose(1, 2)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=grouped)


def _fresh(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """A document from its start: [B, heads, S, head_dim] each."""
    length = q.shape[2]
    if window is None or window >= length:
        return _sdpa(q, k, v, scale, causal=length > 1)
    return _windowed(q, k, v, scale, window)


def _windowed(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Queries are the last of the keys' tokens; blocks of queries against the keys that any of them sees."""
    length, offset = q.shape[2], k.shape[2] - q.shape[2]
    block = max(window, QUERY_BLOCK)
    parts = []
    for start in range(0, length, block):
        end = min(start + block, length)
        first = max(0, offset + start - window + 1)
        rows = torch.arange(offset + start, offset + end, device=q.device)[:, None]
        columns = torch.arange(first, offset + end, device=q.device)
        mask = (columns <= rows) & (columns > rows - window)
        keys, values = k[:, :, first : offset + end], v[:, :, first : offset + end]
        parts.append(_sdpa(q[:, :, start:end], keys, values, scale, mask))
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


def _continued(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """Queries that are the last of the keys' tokens: [B, heads, S, head_dim] against [B, kv_heads, past + S,
    head_dim]."""
    length, total = q.shape[2], k.shape[2]
    if length == total:
        return _fresh(q, k, v, scale, window)
    if window is not None and total > window:
        return _windowed(q, k, v, scale, window)
    if length == 1:
        return _sdpa(q, k, v, scale)
    rows = torch.arange(total - length, total, device=q.device)[:, None]
    return _sdpa(q, k, v, scale, torch.arange(total, device=q.device) <= rows)


def _cached(
    q: Tensor, k: Tensor, v: Tensor, past: list[int], state: KVState, scale: float, window: int | None
) -> Tensor:  # fmt: skip
    """Rows of new tokens behind what the cache holds, which may be of different length in each row."""
    length = q.shape[2]
    if len(set(past)) == 1:
        keys, values = state.append(k, v, past[0])
        return _continued(q, keys, values, scale, window)
    keys, values = state.append_ragged(k, v, past)
    rows = torch.tensor(past, device=q.device)[:, None] + torch.arange(length, device=q.device)
    columns = torch.arange(keys.shape[2], device=q.device)
    mask = columns <= rows[..., None]
    if window is not None:
        mask &= columns > rows[..., None] - window
    return _sdpa(q, keys, values, scale, mask[:, None])


def _documents(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState | None, scale: float, window: int | None
) -> Tensor:  # fmt: skip
    """A packed row, one document after the other; document n belongs to the cache's row n."""
    assert ctx.borders is not None
    parts = []
    for n, (a, b) in enumerate(zip(ctx.borders, ctx.borders[1:], strict=False)):
        if a == b:
            continue
        queries, keys, values = (t[:, :, a:b] for t in (q, k, v))
        if state is not None:
            keys, values = state.append(keys, values, ctx.past[n], row=n)
        parts.append(_continued(queries, keys, values, scale, window))
    return torch.cat(parts, dim=2) if parts else q
