"""Causal depthwise convolution over time, with SiLU behind it if wanted, in Triton: the form of
`hybridc.runtime.ops.CausalConv1d` for GPUs.

Traffic: the forward reads x and writes y, the backward reads x and the gradient and writes x's gradient, each once from
memory; a tile's neighbours in time are read again from the cache close by. The sums before the SiLU are made again in
the backward and not kept. A step reads and writes the state once, in place where no gradient is wanted.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from hybridc.runtime import ops
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.variant import Variant

if TYPE_CHECKING:
    from hybridc.runtime.cache import ConvState, MambaState
    from hybridc.runtime.context import Context

SPAN = 256
"""Tokens of which one program of the backward sums the weights' gradient: it writes taps + 1 rows for so many."""


class CausalConv1d(ops.CausalConv1d):
    """`hybridc.runtime.ops.CausalConv1d` on a GPU: the same parameters, state and result."""

    def forward(
        self, x: Tensor, ctx: Context, state: ConvState | MambaState | None = None, *, silu: bool = False
    ) -> Tensor:  # fmt: skip
        """x [B, S, channels] -> [B, S, channels], through SiLU if `silu`; reads and replaces the state's inputs."""
        return causal_conv1d(x, self.weight, self.bias, ctx, state, silu=silu)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    ctx: Context,
    state: ConvState | MambaState | None = None,
    *,
    silu: bool = False,
) -> Tensor:
    """y_t = bias + Σ_k weight[:, k] · x_{t - taps + 1 + k}, zeros before a document's start, and y σ(y) if `silu`.

    x [B, S, channels], weight [channels, taps], bias [channels] -> [B, S, channels] in x's dtype; fp32 inside, the SiLU
    too. Documents are the context's. `state` holds their last taps - 1 inputs and is brought up to date; gradients do
    not pass it. Raises UsageError for fp64.
    """
    if x.dtype == torch.float64:
        raise UsageError("the convolution's kernel sums in fp32, not in fp64", "call hybridc.runtime.ops.CausalConv1d")
    x = _rows(x)
    taps = weight.shape[1]
    old = None if state is None or taps == 1 else state.conv.contiguous()
    trained = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    if old is not None and ctx.borders is None and x.shape[1] == 1 and not trained:
        return _step(x, weight, bias, state, old, silu)
    document = borders = None
    if ctx.borders is not None:
        document, borders = ctx.plan(("conv", "documents"), lambda: _documents(ctx.borders, x.device))
    y = _CausalConv.apply(x, weight, bias, old, document, borders, silu)  # type: ignore[no-untyped-call]
    if old is not None:
        state.keep_conv(_last(x, old, borders, taps))
    return y


def _documents(offsets: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Each token's document [T], and the documents' offsets [documents + 1]; int32."""
    counts = torch.tensor([b - a for a, b in pairwise(offsets)], dtype=torch.int64, device=device)
    which = torch.arange(len(counts), dtype=torch.int32, device=device)
    document = which.repeat_interleave(counts, output_size=offsets[-1])
    return document, torch.tensor(offsets, dtype=torch.int32, device=device)


def _rows(x: Tensor) -> Tensor:
    """With neighbouring channels side by side, as the kernels read them; tokens and rows may be any way apart."""
    return x if x.stride(2) == 1 else x.contiguous()


def _tile(channels: int, elements: int) -> tuple[int, int]:
    """Tokens and channels of a tile: 128 channels are 16 threads' loads of 16 bytes in bf16."""
    width = min(128, triton.next_power_of_2(channels))
    return min(32, elements // width), width


class _CausalConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, old, document, borders, silu):  # type: ignore[no-untyped-def]
        rows, length, channels = x.shape
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        tokens, width = _tile(channels, 1024)
        grid = (rows * triton.cdiv(length, tokens) * triton.cdiv(channels, width),)
        _forward_kernel[grid](
            x, weight, bias, old, document, borders, y, length, channels, x.stride(0), x.stride(1), *weight.stride(),
            TAPS=weight.shape[1], SILU=silu, TOKENS=tokens, WIDTH=width,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, bias, old, document, borders)
        ctx.silu = silu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight, bias, old, document, borders = ctx.saved_tensors
        grad = _rows(grad)
        rows, length, channels = x.shape
        taps = weight.shape[1]
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        tokens, width = _tile(channels, 512)
        spans = rows * triton.cdiv(length, SPAN)
        sums = torch.empty(spans, taps + 1, channels, dtype=torch.float32, device=x.device)
        _backward_kernel[(spans * triton.cdiv(channels, width),)](
            grad, x, weight, bias, old, document, borders, dx, sums, length, channels,
            grad.stride(0), grad.stride(1), x.stride(0), x.stride(1), *weight.stride(),
            TAPS=taps, SILU=ctx.silu, TOKENS=tokens, WIDTH=width, SPAN_TOKENS=SPAN,
        )  # fmt: skip
        total = sums.sum(0)
        dbias = None if bias is None else total[taps].to(bias.dtype)
        return dx, total[:taps].t().to(weight.dtype), dbias, None, None, None, None


def _step(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: ConvState | MambaState, old: Tensor, silu: bool
) -> Tensor:  # fmt: skip
    """x [B, 1, channels] -> y [B, 1, channels], with the state moved on by one token."""
    rows, _, channels = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    in_place = old is state.conv and not torch.is_grad_enabled()
    new = old if in_place else torch.empty_like(old)
    width = min(256, triton.next_power_of_2(channels))
    _step_kernel[(rows * triton.cdiv(channels, width),)](
        x, weight, bias, old, new, y, channels, x.stride(0), *weight.stride(),
        TAPS=weight.shape[1], SILU=silu, WIDTH=width,
    )  # fmt: skip
    if in_place:
        increment_version(old)  # a backward that has kept it must fail, as after torch's own writes
    else:
        state.keep_conv(new)
    return y


def _last(x: Tensor, old: Tensor, borders: Tensor | None, taps: int) -> Tensor:
    """The documents' last taps - 1 inputs, old ones counted, [documents, taps - 1, channels]."""
    channels = x.shape[2]
    new = torch.empty_like(old)
    width = min(256, triton.next_power_of_2(channels))
    _last_kernel[(old.shape[0] * triton.cdiv(channels, width),)](
        x, old, borders, new, x.shape[1], channels, x.stride(0), x.stride(1), TAPS=taps, WIDTH=width
    )
    return new


@triton.jit
def _span(document, borders, row, tokens, length):
    """The document of each token, its first token and its end."""
    if document is None:
        which = tl.zeros_like(tokens) + row
        return which, tl.zeros_like(tokens), tl.zeros_like(tokens) + length
    else:
        which = tl.load(document + tokens, mask=tokens < length, other=0)
        return which.to(tl.int64), tl.load(borders + which), tl.load(borders + which + 1)


@triton.jit
def _inputs(x, old, at, which, start, end, here, channel, inside, channels, stride, TAPS: tl.constexpr):
    """fp32 inputs [tokens, channels] of places `at`: of the state before the document's start, zeros behind its end."""
    mask = here & (at >= start) & (at < end)
    v = tl.load(x + at.to(tl.int64)[:, None] * stride + channel[None, :], mask=mask[:, None] & inside[None, :], other=0)
    v = v.to(tl.float32)
    if old is not None:
        place = at - start + (TAPS - 1)
        before = here & (at < start) & (place >= 0)
        at_old = old + (which * (TAPS - 1) + place)[:, None] * channels + channel[None, :]
        v = tl.where(before[:, None], tl.load(at_old, mask=before[:, None] & inside[None, :], other=0), v)
    return v


@triton.jit
def _forward_kernel(
    x, weight, bias, old, document, borders, y, length, channels, stride_row, stride_token, stride_channel, stride_tap,
    TAPS: tl.constexpr, SILU: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    along = tl.cdiv(length, TOKENS)
    program = tl.program_id(0).to(tl.int64)
    row = program // (across * along)
    tokens = ((program // across) % along).to(tl.int32) * TOKENS + tl.arange(0, TOKENS)
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    inside, here = channel < channels, tokens < length
    which, start, end = _span(document, borders, row, tokens, length)
    total = tl.zeros((TOKENS, WIDTH), tl.float32)
    if bias is not None:
        total += tl.load(bias + channel, mask=inside, other=0).to(tl.float32)[None, :]
    for k in tl.static_range(TAPS):
        v = _inputs(
            x + row * stride_row, old, tokens + (k - TAPS + 1), which, start, end, here, channel, inside, channels,
            stride_token, TAPS,
        )  # fmt: skip
        w = tl.load(weight + channel * stride_channel + k * stride_tap, mask=inside, other=0)
        total += v * w.to(tl.float32)[None, :]
    if SILU:
        total *= tl.sigmoid(total)
    at = y + (row * length + tokens)[:, None] * channels + channel[None, :]
    tl.store(at, total.to(y.dtype.element_ty), mask=here[:, None] & inside[None, :])


@triton.jit
def _backward_kernel(
    grad, x, weight, bias, old, document, borders, dx, sums, length, channels, grad_row, grad_token, stride_row,
    stride_token, stride_channel, stride_tap,
    TAPS: tl.constexpr, SILU: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, SPAN_TOKENS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    along = tl.cdiv(length, SPAN_TOKENS)
    program = tl.program_id(0).to(tl.int64)
    span = program // across
    row = span // along
    first = (span % along).to(tl.int32) * SPAN_TOKENS
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    inside = channel < channels
    ws = ()
    for k in tl.static_range(TAPS):
        w = tl.load(weight + channel * stride_channel + k * stride_tap, mask=inside, other=0)
        ws += (w.to(tl.float32)[None, :],)
    shift = tl.zeros((1, WIDTH), tl.float32)
    if bias is not None:
        shift += tl.load(bias + channel, mask=inside, other=0).to(tl.float32)[None, :]
    # a tile for each sum, added up over the rows of tokens only at the end
    totals = ()
    for _k in tl.static_range(TAPS + 1):
        totals += (tl.zeros((TOKENS, WIDTH), tl.float32),)
    for t in range(first, tl.minimum(first + SPAN_TOKENS, length), TOKENS):
        tokens = t + tl.arange(0, TOKENS)
        here = tokens < length
        which, start, end = _span(document, borders, row, tokens, length)
        # the inputs of all outputs that the tile's tokens enter: from taps - 1 before to taps - 1 behind
        xs = ()
        for o in tl.static_range(2 * TAPS - 1 if SILU else TAPS):
            v = _inputs(
                x + row * stride_row, old, tokens + (o - TAPS + 1), which, start, end, here, channel, inside, channels,
                stride_token, TAPS,
            )  # fmt: skip
            xs += (v,)
        result = tl.zeros((TOKENS, WIDTH), tl.float32)
        news = ()
        for j in tl.static_range(TAPS):
            at = grad + row * grad_row + (tokens + j).to(tl.int64)[:, None] * grad_token + channel[None, :]
            g = tl.load(at, mask=(here & (tokens + j < end))[:, None] & inside[None, :], other=0).to(tl.float32)
            if SILU:
                total = shift + ws[0] * xs[j]
                for k in tl.static_range(1, TAPS):
                    total += ws[k] * xs[j + k]
                s = tl.sigmoid(total)
                g *= s * (1 + total * (1 - s))
            result += g * ws[TAPS - 1 - j]
            if j == 0:
                for k in tl.static_range(TAPS):
                    news += (totals[k] + g * xs[k],)
                news += (totals[TAPS] + g,)
        totals = news
        at = dx + (row * length + tokens)[:, None] * channels + channel[None, :]
        tl.store(at, result.to(dx.dtype.element_ty), mask=here[:, None] & inside[None, :])
    for k in tl.static_range(TAPS + 1):
        tl.store(sums + (span * (TAPS + 1) + k) * channels + channel, tl.sum(totals[k], 0), mask=inside)


@triton.jit
def _step_kernel(
    x, weight, bias, old, new, y, channels, stride_row, stride_channel, stride_tap,
    TAPS: tl.constexpr, SILU: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    row = program // across
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    inside = channel < channels
    base = row * (TAPS - 1) * channels + channel
    total = tl.zeros((WIDTH,), tl.float32)
    if bias is not None:
        total += tl.load(bias + channel, mask=inside, other=0).to(tl.float32)
    for k in tl.static_range(TAPS):
        if k < TAPS - 1:
            v = tl.load(old + base + k * channels, mask=inside, other=0)
        else:
            v = tl.load(x + row * stride_row + channel, mask=inside, other=0).to(tl.float32)
        w = tl.load(weight + channel * stride_channel + k * stride_tap, mask=inside, other=0)
        total += v * w.to(tl.float32)
        if k > 0:  # its place has been read, even where new is old
            tl.store(new + base + (k - 1) * channels, v, mask=inside)
    if SILU:
        total *= tl.sigmoid(total)
    tl.store(y + row * channels + channel, total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _last_kernel(
    x, old, borders, new, length, channels, stride_row, stride_token, TAPS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    which = program // across
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    inside = channel < channels
    if borders is None:
        base, start, end = x + which * stride_row, 0, length
    else:
        base, start, end = x, tl.load(borders + which), tl.load(borders + which + 1)
    for k in tl.static_range(TAPS - 1):
        at = tl.zeros_like(channel) + (end - (TAPS - 1) + k)
        v = tl.load(base + at.to(tl.int64) * stride_token + channel, mask=inside & (at >= start), other=0)
        place = at - start + (TAPS - 1)
        before = tl.load(old + (which * (TAPS - 1) + place) * channels + channel, mask=inside & (at < start), other=0)
        tl.store(
            new + (which * (TAPS - 1) + k) * channels + channel,
            tl.where(at < start, before, v.to(tl.float32)),
            mask=inside,
        )


_SHAPE = dict.fromkeys(("length", "channels", "stride_row", "stride_token"), "i32:16") | {
    "stride_channel": "i32",
}
_WEIGHTS = {"weight": "*bf16:16", "bias": "*bf16:16"}
_PACKED = {"document": "*i32:16", "borders": "*i32:16"}
VARIANTS = (
    Variant(
        _forward_kernel,
        {"x": "*bf16:16", **_WEIGHTS, **_PACKED, "y": "*bf16:16", **_SHAPE},
        {"old": None, "stride_tap": 1, "TAPS": 4, "SILU": True, "TOKENS": 8, "WIDTH": 128},
    ),
    Variant(
        _forward_kernel,
        {"x": "*bf16:16", **_WEIGHTS, **_PACKED, "old": "*fp32:16", "y": "*bf16:16", **_SHAPE},
        {"stride_tap": 1, "TAPS": 4, "SILU": True, "TOKENS": 8, "WIDTH": 128},
        name="_forward_kernel_with_state",
    ),
    Variant(
        _backward_kernel,
        {"grad": "*bf16:16", "x": "*bf16:16", **_WEIGHTS, **_PACKED, "dx": "*bf16:16", "sums": "*fp32:16", **_SHAPE}
        | {"grad_row": "i32:16", "grad_token": "i32:16"},
        {"old": None, "stride_tap": 1, "TAPS": 4, "SILU": True, "TOKENS": 4, "WIDTH": 128, "SPAN_TOKENS": SPAN},
    ),
    Variant(
        _step_kernel,
        {"x": "*bf16:16", **_WEIGHTS, "old": "*fp32:16", "new": "*fp32:16", "y": "*bf16:16"}
        | {"channels": "i32:16", "stride_row": "i32:16", "stride_channel": "i32"},
        {"stride_tap": 1, "TAPS": 4, "SILU": True, "WIDTH": 256},
    ),
    Variant(
        _last_kernel,
        {"x": "*bf16:16", "old": "*fp32:16", "borders": "*i32:16", "new": "*fp32:16", **_SHAPE}
        | {"stride_row": "i32:16"},
        {"TAPS": 4, "WIDTH": 256},
    ),
)
