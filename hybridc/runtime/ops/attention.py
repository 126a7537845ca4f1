"""Causal attention over documents, with windows and a cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from hybridc.runtime.cache import KVState, LatentState
    from hybridc.runtime.context import Context

QUERY_BLOCK = 128
"""Queries of a windowed attention are handled in blocks of the window's size, and of this many at least."""


SCORES = 1 << 24
"""Scores that are held at once where the softmax is written out."""


@dataclass(frozen=True)
class Softmax:
    """How scores become weights: times `scale`, capped to softcap tanh(score / softcap), with the logits `sinks`
    [heads] in the sum, a share of `dropout` dropped."""

    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None
    dropout: float = 0.0

    @property
    def fused(self) -> bool:
        """Whether torch's own function does it."""
        return self.softcap is None and self.sinks is None


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ctx: Context,
    state: KVState | LatentState | None = None,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(scale q kᵀ) v over the tokens up to and including each one, the last `window` of them if that is given.

    q [B, S, heads, head_dim], k [B, S, kv_heads, head_dim], v [B, S, kv_heads, value_dim]; query head h reads key head
    h // (heads / kv_heads) -> [B, S, heads, value_dim]. `softcap` c makes scores c tanh(score / c) (Gemma 2); `sinks`
    [heads] are logits that the softmax counts and no value has (gpt-oss); `dropout` is the share of weights dropped.
    """
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    how = Softmax(scale, softcap, sinks, dropout)
    if ctx.borders is not None:
        y = _documents(q, k, v, ctx, state, how, window)
    elif state is None:
        y = _continued(q, k, v, how, window)
    elif min(ctx.past) == max(ctx.past):
        y = _continued(q, *state.append(k, v, ctx.past[0]), how, window)
    else:
        y = _ragged(q, k, v, ctx, state, how, window)
    return y.transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, how: Softmax, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """One call of torch's attention, or the same written out where it lacks something."""
    if how.fused:
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, mask, how.dropout, is_causal=causal, scale=how.scale, enable_gqa=grouped
        )
    if causal:
        mask = _visible(q.shape[2], k.shape[2], None, q.device)
    rows = max(1, SCORES // (q.shape[0] * q.shape[1] * k.shape[2]))
    parts = []
    for start in range(0, q.shape[2], rows):
        part = slice(start, start + rows)
        parts.append(_written_out(q[:, :, part], k, v, how, None if mask is None else mask[..., part, :]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _written_out(q: Tensor, k: Tensor, v: Tensor, how: Softmax, mask: Tensor | None) -> Tensor:
    """q [B, heads, L, head_dim], k and v [B, kv_heads, T, ...], mask [L, T] or [B, 1, L, T] of what is seen."""
    groups = k.shape[1]
    inside = torch.promote_types(q.dtype, torch.float32)
    scores = (q.unflatten(1, (groups, -1)) @ k[:, :, None].transpose(-1, -2)).to(inside) * how.scale
    if how.softcap is not None:
        scores = (scores / how.softcap).tanh() * how.softcap
    if mask is not None:
        scores = scores.masked_fill(~(mask if mask.dim() == 2 else mask[:, None]), -torch.inf)
    if how.sinks is None:
        weights = scores.softmax(-1)
    else:
        sinks = how.sinks.to(inside).view(1, groups, -1, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.cat((scores, sinks), dim=-1).softmax(-1)[..., :-1]
    if how.dropout:
        weights = F.dropout(weights, how.dropout)
    return (weights.to(v.dtype) @ v[:, :, None]).flatten(1, 2)


def _windowed(q: Tensor, k: Tensor, v: Tensor, how: Softmax, window: int) -> Tensor:
    """Queries that are the last of the keys' tokens, against the `window` keys that each sees.

    Blocks of queries, of the window's size, meet two blocks of keys each: their own and the one before.
    """
    length, size = q.shape[2], max(window, QUERY_BLOCK)
    unseen = max(0, k.shape[2] - length - (window - 1))
    k, v = k[:, :, unseen:], v[:, :, unseen:]
    offset = k.shape[2] - length
    if length <= size:
        if length == 1:
            return _attend(q, k, v, how)
        return _attend(q, k, v, how, _visible(length, k.shape[2], window, q.device))
    head, rest = q.split((size, length - size), dim=2)
    first = _windowed(head, k[:, :, : offset + size], v[:, :, : offset + size], how, window)
    blocks = -(-rest.shape[2] // size)
    tail = blocks * size - rest.shape[2]
    rest = F.pad(rest, (0, 0, 0, tail)).unflatten(2, (blocks, size))
    pairs = []
    for t in (k[:, :, offset:], v[:, :, offset:]):
        t = F.pad(t, (0, 0, 0, tail)).unflatten(2, (blocks + 1, size))
        pairs.append(_as_batch(torch.cat((t[:, :, :-1], t[:, :, 1:]), dim=3)))
    y = _attend(_as_batch(rest), *pairs, how, _visible(size, 2 * size, window, q.device))
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


def _continued(q: Tensor, k: Tensor, v: Tensor, how: Softmax, window: int | None) -> Tensor:
    """Queries that are the last of the keys' tokens: [B, heads, S, head_dim] against [B, kv_heads, past + S,
    head_dim]."""
    length, total = q.shape[2], k.shape[2]
    if window is not None and total > window:
        return _windowed(q, k, v, how, window)
    if length == total or length == 1:
        return _attend(q, k, v, how, causal=length > 1)
    return _attend(q, k, v, how, _visible(length, total, None, q.device))


def _ragged(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState | LatentState, how: Softmax, window: int | None
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
    return _attend(q, keys, values, how, ctx.plan(("visible", window), visible))


def _documents(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState | LatentState | None, how: Softmax, window: int | None
) -> Tensor:  # fmt: skip
    """A packed row, one document after the other; document n belongs to the cache's row n."""
    parts = []
    documents = zip(*(t.split(ctx.lengths, dim=2) for t in (q, k, v)), strict=True)
    for n, (queries, keys, values) in enumerate(documents):
        if not ctx.lengths[n]:
            continue
        if state is not None:
            keys, values = state.append(keys, values, ctx.past[n], row=n)
        parts.append(_continued(queries, keys, values, how, window))
    return torch.cat(parts, dim=2) if parts else q.new_zeros(*q.shape[:3], v.shape[3])
