"""Causal attention by Transformer Engine: rows, packed documents, and queries behind a cache of keys and values."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
import transformer_engine.pytorch as engine
from torch import Tensor
from torch.func import functional_call

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
    """As `hybridc.runtime.ops.attention`, on bf16 or fp16: q [B, S, heads, head_dim], k and v [B, S, kv_heads, ...] ->
    [B, S, heads, value_dim].

    Rows of one length go as they are; documents, and rows behind pasts of different length, go packed, with their
    borders on the device. Transformer Engine chooses cuDNN's kernels or flash-attn's; where neither has a case it
    computes all scores in torch, unless NVTE_UNFUSED_ATTN=0 makes that an error.
    """
    ragged = state is not None and min(ctx.past) != max(ctx.past)
    options = {"scale": scale, "softcap": softcap or 0.0, "dropout": dropout}
    if ctx.borders is not None or ragged:
        return _packed(q, k, v, ctx, state, window, sinks, options)
    if state is not None:
        seen = state.append(k.transpose(1, 2), v.transpose(1, 2), ctx.past[0])
        k, v = (t.transpose(1, 2) for t in seen)
    length, total = q.shape[1], k.shape[1]
    if length == 1:
        # the last token sees all keys that are left: no mask, which every kernel has
        k, v = (t[:, -window:] if window is not None else t for t in (k, v))
        mask: dict[str, Any] = {"attn_mask_type": "no_mask", "window_size": (-1, -1)}
    else:
        mask = _causal("causal", length == total, window, total)
    return _run(q, k, v, sinks, options, qkv_format="bshd", **mask).unflatten(-1, (q.shape[2], -1))


def _packed(
    q: Tensor, k: Tensor, v: Tensor, ctx: Context, state: KVState | None, window: int | None, sinks: Tensor | None,
    options: dict[str, float],
) -> Tensor:  # fmt: skip
    """Documents of one row, or rows, each behind a past of its own; document n belongs to the cache's row n."""
    if not q.shape[1] or not q.shape[0]:
        return q.new_zeros(*q.shape[:3], v.shape[3])
    if state is None:
        keys, values = k.flatten(0, 1), v.flatten(0, 1)
    else:
        dim, lengths = (0, [1] * k.shape[0]) if ctx.borders is None else (1, ctx.lengths)
        parts = zip(k.split(lengths, dim), v.split(lengths, dim), strict=True)
        seen = [
            state.append(new_k.transpose(1, 2), new_v.transpose(1, 2), ctx.past[n], row=n)
            for n, (new_k, new_v) in enumerate(parts)
            if new_k.shape[1]
        ]
        keys, values = (torch.cat([t[0] for t in both], dim=1).transpose(0, 1) for both in zip(*seen, strict=True))

    def borders() -> tuple[Tensor, Tensor, int, int]:
        new = [n for n in ctx.lengths if n]
        all_of = [n + p for n, p in zip(ctx.lengths, ctx.past, strict=True) if n]
        offsets = (torch.tensor([0, *accumulate(n)], dtype=torch.int32, device=q.device) for n in (new, all_of))
        return *offsets, max(new), max(all_of)

    cu_q, cu_kv, longest, total = ctx.plan("cu_seqlens", borders)
    same = keys.shape[0] == q.shape[0] * q.shape[1]
    y = _run(
        q.flatten(0, 1), keys, values, sinks, options, qkv_format="thd", cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv,
        max_seqlen_q=longest, max_seqlen_kv=total, **_causal("padding_causal", same, window, total),
    )  # fmt: skip
    return y.unflatten(-1, (q.shape[2], -1)).unflatten(0, q.shape[:2])


def _causal(kind: str, same: bool, window: int | None, total: int) -> dict[str, Any]:
    """The mask for queries that are all of the keys' tokens, or the last ones of each document."""
    left = window - 1 if window is not None and window < total else -1
    return {"attn_mask_type": kind if same else f"{kind}_bottom_right", "window_size": (left, 0)}


def _run(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, options: dict[str, float], **how: Any) -> Tensor:
    """One call: [..., heads x value_dim]. Sinks take the place of the module's own."""
    training = torch.is_grad_enabled() or bool(options["dropout"])
    core = _core(q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], sinks is not None, training, **options)
    if sinks is None:
        return core(q, k, v, **how)
    return functional_call(core, {"softmax_offset": sinks}, (q, k, v), how)


@cache
def _core(
    heads: int, kv_heads: int, head_dim: int, value_dim: int, sinks: bool, training: bool,
    *, scale: float, softcap: float, dropout: float,
) -> engine.DotProductAttention:  # fmt: skip
    """The module for attention of these sizes, one for all layers that have them: it holds nothing of theirs."""
    core = engine.DotProductAttention(
        heads,
        head_dim if head_dim == value_dim else (head_dim, value_dim),
        num_gqa_groups=kv_heads,
        attention_dropout=dropout,
        softcap=softcap,
        softmax_scale=scale,
        softmax_type="learnable" if sinks else "vanilla",
    )
    return core.train(training)
