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
        y = _continued(q, k, v, scale, window)
    elif min(ctx.past) == max(ctx.past):
        y = _continued(q, *state.append(k, v, ctx.past[0]), scale, window)
    else:
        y = _ragged(q, k, v, ctx, state, scale, window)
    return y.transpose(1, 2)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=grouped)


def _windowed(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Queries that are the last of the keys' tokens, against the `window` keys that each sees.

    Blocks of queries, of the window's size, meet two blocks of keys each: their own and the one before.
    """
    length, size = q.shape[2], max(window, QUERY_BLOCK)
    unseen = max(0, k.shape[2] - length - (window - 1))
    k, v = k[:, :, unseen:], v[:, :, unseen:]
    offset = k.shape[2] - length
    if length <= size:
        if length == 1:
            return _sdpa(q, k, v, scale)
        return _sdpa(q, k, v, scale, _visible(length, k.shape[2], window, q.device))
    head, rest = q.split((size, length - size), dim=2)
    first = _windowed(head, k[:, :, : offset + size], v[:, :, : offset + size], scale, window)
    blocks = -(-rest.shape[2] // size)
    tail = blocks * size - rest.shape[2]
    rest = F.pad(rest, (0, 0, 0, tail)).unflatten(2, (blocks, size))
    pairs = []
    for t in (k[:, :, offset:], v[:, :, offset:]):
        t = F.pad(t, (0, 0, 0, tail)).unflatten(2, (blocks + 1, size))
        pairs.append(_as_batch(torch.cat((t[:, :, :-1], t[:, :, 1:]), dim=3)))
    y = _sdpa(_as_batch(rest), *pairs, scale, _visible(size, 2 * size, window, q.device))
    y = y.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)
    return torch.cat((first, y[:, :, : length - size]), dim=2)


def _as_batch(x: Tensor) -> Tensor:
    """[B, heads, blocks, size, head_dim] -> [B x blocks, heads, size, head_dim]."""
    return x.transpose(1, 2).flatten(0, 1)


def _visible(length: int, total: int, window: int | None, device: torch.device) -> Tensor:
    """Which of `total` keys the last `length` tokens see: [length, total]."""
    rows = torch.arange(total - length, total, device=device)[:, None]
    columns = torch.arange(total, device=device)
    seen = columns <= rows
    return seen if window is None else seen & (columns > rows - window)


def _continued(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """Queries that are the last of the keys' tokens: [B, heads, S, head_dim] against [B, kv_heads, past + S,
    head_dim]."""
    length, total = q.shape[2], k.shape[2]
    if window is not None and total > window:
        return _windowed(q, k, v, scale, window)
    if length == total or length == 1:
        return _sdpa(q, k, v, scale, causal=length > 1)
    return _sdpa(q, k, v, scale, _visible(length, total, None, q.device))


def _ragged(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState, scale: float, window: int | None
) -> Tensor:  # fmt: skip
    """Rows of new tokens behind pasts of different length."""
    rows, length = q.shape[0], q.shape[2]

    def places() -> tuple[Tensor, Tensor, int]:
        past = torch.tensor(ctx.past, device=q.device)[:, None]
        row = torch.arange(rows, device=q.device)[:, None]
        return row, past + torch.arange(length, device=q.device), max(ctx.past) + length

    def visible() -> Tensor:
        _, place, end = ctx.plan("places", places)
        columns = torch.arange(end, device=q.device)
        seen = columns <= place[..., None]
        return (seen if window is None else seen & (columns > place[..., None] - window))[:, None]

    keys, values = state.append_ragged(k, v, *ctx.plan("places", places))
    return _sdpa(q, keys, values, scale, ctx.plan(("visible", window), visible))


def _documents(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState | None, scale: float, window: int | None
) -> Tensor:  # fmt: skip
    """A packed row, one document after the other; document n belongs to the cache's row n."""
    parts = []
    documents = zip(*(t.split(ctx.lengths, dim=2) for t in (q, k, v)), strict=True)
    for n, (queries, keys, values) in enumerate(documents):
        if not ctx.lengths[n]:
            continue
        if state is not None:
            keys, values = state.append(keys, values, ctx.past[n], row=n)
        parts.append(_continued(queries, keys, values, scale, window))
    return torch.cat(parts, dim=2) if parts else q
