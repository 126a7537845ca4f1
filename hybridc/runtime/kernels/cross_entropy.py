"""The head's projection and the cross entropy of its logits as one, in Triton: the logits never exist as a whole.

Forward: a program takes some tokens and goes over a range of the vocabulary, tile by tile, keeping the running maximum
and sum of exponentials (Milakov and Gimelshein, 2018); it writes two numbers a token. Read are the hidden states once
for each range and the weight once for each block of tokens that does not meet it in the cache.

Backward: for some thousand words at a time the logits are made again, and become their own gradient [tokens, words] in
the data's dtype, which two plain products take to the hidden states' gradient (summed in fp32) and to those words' rows
of the weight's. That chunk is all the memory there is besides the results. A quarter of the work is done again, for
logits that are not kept.

Blocks of tokens without a target cost nothing in the forward, and write zeros in the backward.
"""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.triangular import PRECISION
from hybridc.runtime.kernels.variant import Variant
from hybridc.runtime.ops.autocast import without_autocast
from hybridc.runtime.ops.losses import token_cross_entropy

IGNORED = tl.constexpr(-100)
"""The target of a token that has none."""

PROGRAMS = 1024
"""About how many programs the forward is split into: some for each multiprocessor of any device."""

WORDS = 2048
"""The least number of words whose logits the backward makes at a time."""


@without_autocast
def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    """Mean of -log softmax(logits)[target] over targets other than -100, in fp32; 0 with a graph where there is none.

    logits = scale (x Wᵀ + bias), then softcap tanh(logits / softcap) if there is one. x [..., D], weight [vocab, D] and
    bias [vocab] of x's dtype, targets [...] int64; a target outside of the vocabulary makes the mean NaN.
    Differentiable in x, weight and bias. Raises UsageError for fp64 and for dtypes and shapes that do not fit.
    """
    losses = linear_token_losses(x, weight, targets, bias, scale=scale, softcap=softcap)
    return losses.sum() / (targets != -100).sum().clamp(min=1)


@without_autocast
def linear_token_losses(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    """-log softmax(logits)[target] of each token, fp32 like targets, and 0 where the target is -100; the rest as in
    `linear_cross_entropy`."""
    if x.dtype == torch.float64:
        raise UsageError(
            "the kernels of the cross entropy sum in fp32, not in fp64",
            "make the logits, and call ops.losses.token_cross_entropy",
        )
    if weight.dtype != x.dtype or (bias is not None and bias.dtype != x.dtype):
        raise UsageError(f"hidden states are {x.dtype} and the head is {weight.dtype}", "cast one to the other's dtype")
    if weight.shape[1] != x.shape[-1] or targets.shape != x.shape[:-1]:
        raise UsageError(
            f"hidden states are {list(x.shape)}, the head {list(weight.shape)} and targets {list(targets.shape)}",
            "give [..., dim], [vocab, dim] and [...]",
        )
    if x.stride(-1) != 1:
        x = x.contiguous()
    if weight.stride(-1) != 1:
        weight = weight.contiguous()
    flat = x.flatten(0, -2), weight, targets.reshape(-1).contiguous(), None if bias is None else bias.contiguous()
    return _TokenLosses.apply(*flat, scale, softcap).view(targets.shape)


def linear_cross_entropy_reference(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    """What `linear_cross_entropy` computes, with the logits as a whole."""
    logits = scale * F.linear(x, weight, bias)
    if softcap is not None:
        logits = softcap * (logits / softcap).tanh()
    return token_cross_entropy(logits.flatten(0, -2), targets.reshape(-1))


@triton.jit
def _logits(
    x, weight, bias, row, col, tokens, vocab, x_t, w_v, scale, softcap,
    D: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr, BD: tl.constexpr, BIAS: tl.constexpr, SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Logits [BT, BV] fp32 of tokens `row` and words `col`; what lies beyond either end is some number."""
    # tokens and words beyond the end are read as the last ones, so that only channels need a mask
    x_rows = x + tl.minimum(row, tokens - 1).to(tl.int64)[:, None] * x_t
    w_rows = weight + tl.minimum(col, vocab - 1).to(tl.int64)[:, None] * w_v
    z = tl.zeros((BT, BV), dtype=tl.float32)
    for first in range(0, D, BD):
        d = first + tl.arange(0, BD)
        x_tile = tl.load(x_rows + d[None, :], mask=(d < D)[None, :], other=0.0)
        w_tile = tl.load(w_rows + d[None, :], mask=(d < D)[None, :], other=0.0)
        z = tl.dot(x_tile, tl.trans(w_tile), z, input_precision=PRECISION)
    if BIAS:
        z += tl.load(bias + col, mask=col < vocab, other=0.0).to(tl.float32)[None, :]
    z *= scale
    if SOFTCAP:
        # tanh(u) = 2 σ(2 u) - 1
        z = 2 * softcap * tl.sigmoid(z * (2 / softcap)) - softcap
    return z


@triton.jit
def forward(
    x, weight, bias, targets, lse, picked, tokens, vocab, blocks, x_t, w_v, scale, softcap,
    D: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr, BD: tl.constexpr, BIAS: tl.constexpr, SOFTCAP: tl.constexpr,
):  # fmt: skip
    """A program for BT tokens and `blocks` blocks of BV words: the log-sum-exp of the logits and the target's logit, 0
    if it is elsewhere, [ranges, T] fp32. Programs of one range run side by side, so that they share the weight."""
    across = tl.cdiv(tokens, BT)
    row = tl.program_id(0) % across * BT + tl.arange(0, BT)
    part = tl.program_id(0) // across
    target = tl.load(targets + row, mask=row < tokens, other=IGNORED)
    first = part * blocks
    last = tl.minimum(first + blocks, tl.cdiv(vocab, BV))
    # without a target there is nothing to do
    last = tl.where(tl.max((target != IGNORED).to(tl.int32), 0) > 0, last, first)
    most = tl.full((BT,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BT,), dtype=tl.float32) + tl.where(last > first, 0.0, 1.0)
    found = tl.zeros((BT,), dtype=tl.float32)
    for block in range(first, last):
        col = block * BV + tl.arange(0, BV)
        z = _logits(
            x, weight, bias, row, col, tokens, vocab, x_t, w_v, scale, softcap, D, BT, BV, BD, BIAS, SOFTCAP
        )  # fmt: skip
        found += tl.sum(tl.where(col[None, :] == target[:, None], z, 0.0), 1)
        z = tl.where((col < vocab)[None, :], z, float("-inf"))
        higher = tl.maximum(most, tl.max(z, 1))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(z - higher[:, None]), 1)
        most = higher
    place = part.to(tl.int64) * tokens + row
    tl.store(lse + place, most + tl.log(total), mask=row < tokens)
    tl.store(picked + place, found, mask=row < tokens)


@triton.jit
def logits_backward(
    x, weight, bias, targets, lse, grad, out, tokens, vocab, first, out_t, x_t, w_v, scale, softcap,
    D: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr, BD: tl.constexpr, BIAS: tl.constexpr, SOFTCAP: tl.constexpr,
):  # fmt: skip
    """A program for BT tokens and BV words from `first` on: the gradient of x Wᵀ + bias, into out [T, whole blocks],
    from those of the tokens' losses `grad` [T] fp32. Words beyond the end get some number."""
    across = tl.cdiv(tokens, BT)
    row = tl.program_id(0) % across * BT + tl.arange(0, BT)
    at = tl.program_id(0) // across * BV + tl.arange(0, BV)
    target = tl.load(targets + row, mask=row < tokens, other=IGNORED)
    # no mask for words: writes that end anywhere would be written number by number
    place = out + row.to(tl.int64)[:, None] * out_t + at[None, :]
    if tl.max((target != IGNORED).to(tl.int32), 0) > 0:
        col = first + at
        z = _logits(
            x, weight, bias, row, col, tokens, vocab, x_t, w_v, scale, softcap, D, BT, BV, BD, BIAS, SOFTCAP
        )  # fmt: skip
        amount = tl.load(grad + row, mask=row < tokens, other=0.0)
        amount = tl.where(target == IGNORED, 0.0, amount * scale)
        whole = tl.load(lse + row, mask=row < tokens, other=0.0)
        slope = tl.exp(z - whole[:, None]) - tl.where(col[None, :] == target[:, None], 1.0, 0.0)
        if SOFTCAP:
            z /= softcap
            slope *= 1 - z * z
        slope *= amount[:, None]
        tl.store(place, slope.to(out.dtype.element_ty), mask=(row < tokens)[:, None])
    else:
        tl.store(place, tl.zeros((BT, BV), dtype=out.dtype.element_ty), mask=(row < tokens)[:, None])


class _Blocks:
    """Sizes of tiles, and what all launches have in common."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None, scale: float, softcap: float | None) -> None:
        (self.tokens, self.dim), self.vocab = x.shape, weight.shape[0]
        side = 128 if x.element_size() == 2 else 64
        self.rows, self.words = (min(side, max(16, triton.next_power_of_2(n))) for n in (self.tokens, self.vocab))
        self.across = triton.cdiv(self.tokens, self.rows)
        depth = 64 if x.element_size() == 2 else 32
        self.constants = dict(
            D=self.dim, BT=self.rows, BV=self.words, BD=min(depth, max(16, triton.next_power_of_2(self.dim))),
            BIAS=bias is not None, SOFTCAP=softcap is not None, num_warps=8, num_stages=3,
        )  # fmt: skip
        self.numbers = (x.stride(0), weight.stride(0), float(scale), 1.0 if softcap is None else float(softcap))


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, targets, bias, scale, softcap):  # type: ignore[no-untyped-def]
        run = _Blocks(x, weight, bias, scale, softcap)
        tiles = triton.cdiv(run.vocab, run.words)
        blocks = triton.cdiv(tiles, min(tiles, max(1, PROGRAMS // max(1, run.across))))
        ranges = triton.cdiv(tiles, blocks)
        lse, picked = (torch.empty(ranges, run.tokens, dtype=torch.float32, device=x.device) for _ in range(2))
        if run.tokens:
            forward[(run.across * ranges,)](
                x, weight, targets if bias is None else bias, targets, lse, picked, run.tokens, run.vocab, blocks,
                *run.numbers, **run.constants,
            )  # fmt: skip
        lse = lse.logsumexp(0)
        known = (targets >= 0) & (targets < run.vocab)
        losses = torch.where(known, lse - picked.sum(0), torch.nan).masked_fill(targets == -100, 0.0)
        ctx.save_for_backward(x, weight, targets, bias, lse)
        ctx.how = scale, softcap
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight, targets, bias, lse = ctx.saved_tensors
        run = _Blocks(x, weight, bias, *ctx.how)
        want_x, want_weight, _, want_bias, _, _ = ctx.needs_input_grad
        dx = torch.zeros(x.shape, dtype=torch.float32, device=x.device) if want_x else None
        dw = torch.empty_like(weight, memory_format=torch.contiguous_format) if want_weight else None
        db = torch.empty_like(bias) if want_bias else None
        most = triton.cdiv(max(run.dim, WORDS), run.words) * run.words
        grad = grad.contiguous()
        for first in range(0, run.vocab, most):
            words = min(most, run.vocab - first)
            part = slice(first, first + words)
            blocks = triton.cdiv(words, run.words)
            slopes = torch.empty(run.tokens, blocks * run.words, dtype=x.dtype, device=x.device)
            if run.tokens:
                logits_backward[(run.across * blocks,)](
                    x, weight, targets if bias is None else bias, targets, lse, grad, slopes, run.tokens, run.vocab,
                    first, slopes.stride(0), *run.numbers, **run.constants,
                )  # fmt: skip
            slopes = slopes[:, :words]
            if want_x:
                dx += slopes @ weight[part]
            if want_weight:
                torch.mm(slopes.t(), x, out=dw[part])
            if want_bias:
                db[part] = slopes.sum(0, dtype=torch.float32)
        return None if dx is None else dx.to(x.dtype), dw, None, db, None, None


def _variant(kernel, name, capped, **integers):  # type: ignore[no-untyped-def]
    tensors = {n: "*bf16:16" for n in ("x", "weight", "bias")}
    tensors |= {"targets": "*i64:16", "lse": "*fp32:16", "picked": "*fp32:16", "grad": "*fp32:16", "out": "*bf16:16"}
    numbers = dict.fromkeys(("tokens", "vocab", "x_t", "w_v", "first", "out_t"), "i32:16") | {"blocks": "i32"}
    kinds = tensors | numbers | dict.fromkeys(("scale", "softcap"), "fp32")
    constants = {"D": 4096, "BT": 128, "BV": 128, "BD": 64, "BIAS": False, "SOFTCAP": capped}
    signature = {n: kinds[n] for n in inspect.signature(kernel.fn).parameters if n not in constants}
    return Variant(kernel, signature, constants, 8, 3, name=f"cross_entropy_{name}{'_softcap' if capped else ''}")


VARIANTS = tuple(
    _variant(kernel, name, capped)
    for capped in (False, True)
    for name, kernel in (("forward", forward), ("backward", logits_backward))
)
