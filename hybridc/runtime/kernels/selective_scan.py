"""Mamba's scan in Triton: `hybridc.runtime.ops.selective_scan` for GPUs, forward and token by token (Gu and Dao, 2023).

The forward goes over chunks of 16 tokens side by side: what each adds to its channels' states, the states passed from
chunk to chunk, and the outputs. A thread has a channel and goes over a chunk's tokens, with all of them in registers,
for one of the N numbers of the state after another, so nothing is summed across threads. A channel's token costs in
memory: u and dt read twice, y written, and N bytes for states (N / 4 of each of two, fp32, written and read).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels import selective_scan_backward
from hybridc.runtime.kernels.selective_scan_chunks import CHUNK, STRIDES, TYPES, chunk_states, number, vector
from hybridc.runtime.kernels.ssd_chunks import Chunks, of_document, place
from hybridc.runtime.kernels.variant import Variant

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context


def selective_scan(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, ctx: Context, state: MambaState | None = None
) -> Tensor:  # fmt: skip
    """h_t = exp(dt_t a) h_{t-1} + dt_t b_t u_t, y_t = c_t h_t + d u_t, for each channel and document.

    u [B, S, D], dt [B, S, D] after softplus, a [D, N] negative, b and c [B, S, N], d [D] -> y [B, S, D] in u's dtype;
    fp32 inside. Documents are the context's; they start from the cache entry `state`, which then holds their ends and
    which gradients do not pass, or from zeros. Raises UsageError for fp64.
    """
    if torch.float64 in (u.dtype, dt.dtype, a.dtype, b.dtype, c.dtype):
        raise UsageError("the scan's kernels sum in fp32, not in fp64", "call hybridc.runtime.ops.selective_scan")
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in (u, dt, a, b, c, d))
    if state is not None and ctx.borders is None and u.shape[1] == 1 and not trained:
        return _step(u, dt, a, b, c, d, state)
    chunks = Chunks.make(u, CHUNK, ctx)
    initial = None if state is None else state.ssm.reshape(chunks.documents, *a.shape).contiguous()
    y, last = _Scan.apply(u, dt, a, b, c, d, initial, chunks)  # type: ignore[no-untyped-call]
    if state is not None:
        state.keep_ssm(last)
    return y


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, dt, a, b, c, d, initial, chunks):  # type: ignore[no-untyped-def]
        u, dt, b, c = (t if t.stride(2) == 1 else t.contiguous() for t in (u, dt, b, c))
        d, rates = d.contiguous(), a.float().t().contiguous()
        totals = torch.empty(chunks.count, u.shape[2], dtype=torch.float32, device=u.device)
        added = chunk_states(u, dt, b, rates, chunks, totals)
        before, last = _pass_states(added, initial, totals, rates, chunks)
        y = _outputs(u, dt, rates, b, c, d, before, chunks)
        ctx.save_for_backward(u, dt, rates, b, c, d, totals, before)
        ctx.chunks, ctx.a = chunks, a.dtype
        ctx.mark_non_differentiable(last)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):  # type: ignore[no-untyped-def]
        grad = grad if grad.stride(2) == 1 else grad.contiguous()
        du, ddt, da, db, dc, dd = selective_scan_backward.selective_scan_backward(grad, *ctx.saved_tensors, ctx.chunks)
        return du, ddt, da.to(ctx.a), db, dc, dd, None, None


def _pass_states(
    added: Tensor, initial: Tensor | None, totals: Tensor, rates: Tensor, chunks: Chunks
) -> tuple[Tensor, Tensor]:
    """added [chunks, N, D], initial [documents, D, N] -> the states before the chunks, like `added`, and the documents'
    last ones, like `initial`; fp32."""
    size, channels = added.shape[1:]
    before = torch.empty_like(added)
    last = torch.empty(chunks.documents, channels, size, dtype=torch.float32, device=added.device)
    width = min(256, triton.next_power_of_2(channels))
    _pass_kernel[(chunks.documents * size * triton.cdiv(channels, width),)](
        added, initial, totals, rates, before, last, chunks.first, chunks.per_row, channels, N=size, WIDTH=width
    )
    return before, last


def _outputs(
    u: Tensor, dt: Tensor, rates: Tensor, b: Tensor, c: Tensor, d: Tensor, before: Tensor, chunks: Chunks
) -> Tensor:  # fmt: skip
    channels, size = u.shape[2], b.shape[2]
    y = torch.empty(u.shape, dtype=u.dtype, device=u.device)
    width = min(128, triton.next_power_of_2(channels))
    _outputs_kernel[(chunks.count * triton.cdiv(channels, width),)](
        u, dt, rates, b, c, d, before, y, *chunks.places(), channels,
        *u.stride()[:2], *dt.stride()[:2], *b.stride()[:2], *c.stride()[:2], N=size, WIDTH=width, LENGTH=CHUNK,
    )  # fmt: skip
    return y


def _step(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, state: MambaState
) -> Tensor:  # fmt: skip
    """u [B, 1, D] -> y [B, 1, D], with the state moved on by one token."""
    rows, _, channels = u.shape
    size = b.shape[2]
    old = state.ssm.contiguous()
    in_place = old is state.ssm and not torch.is_grad_enabled()
    new = old if in_place else torch.empty_like(old)
    y = torch.empty(u.shape, dtype=u.dtype, device=u.device)
    columns = triton.next_power_of_2(size)
    width = max(1, min(triton.next_power_of_2(channels), 1024 // columns))
    _step_kernel[(rows * triton.cdiv(channels, width),)](
        u, dt, a, b, c, d, old, new, y, channels, u.stride(0), u.stride(2), dt.stride(0), dt.stride(2), *a.stride(),
        b.stride(0), b.stride(2), c.stride(0), c.stride(2), *d.stride(), N=size, WIDTH=width, COLUMNS=columns,
    )  # fmt: skip
    if in_place:
        increment_version(old)  # a backward that has kept it must fail, as after torch's own writes
    else:
        state.keep_ssm(new)
    return y


@triton.jit
def _pass_kernel(
    added, initial, totals, rates, before, last, first, per_row, channels, N: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    n, document = (program // across) % N, program // across // N
    inside = channel < channels
    own = (document * channels + channel) * N + n
    rate = tl.load(rates + n * channels + channel, mask=inside, other=0)
    if initial is None:
        state = tl.zeros((WIDTH,), tl.float32)
    else:
        state = tl.load(initial + own, mask=inside, other=0).to(tl.float32)
    begin, end = of_document(first, per_row, document)
    for chunk in tl.range(begin, end, num_stages=3):
        at = (chunk * N + n) * channels + channel
        tl.store(before + at, state, mask=inside)
        decay = tl.exp(rate * tl.load(totals + chunk * channels + channel, mask=inside, other=0))
        state = state * decay + tl.load(added + at, mask=inside, other=0)
    tl.store(last + own, state, mask=inside)


@triton.jit
def _outputs_kernel(
    u, dt, rates, b, c, d, before, y, spans, per_row, tokens, channels,
    u_row, u_token, dt_row, dt_token, b_row, b_token, c_row, c_token,
    N: tl.constexpr, WIDTH: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    chunk = program // across
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    u += row * u_row + start * u_token
    dt += row * dt_row + start * dt_token
    b += row * b_row + start * b_token
    c += row * c_row + start * c_token
    skip = tl.load(d + channel, mask=channel < channels, other=0).to(tl.float32)
    steps, inflows, ys = (), (), ()
    for t in tl.static_range(LENGTH):
        step = vector(dt, t, count, dt_token, channel, channels)
        v = vector(u, t, count, u_token, channel, channels)
        steps += (step,)
        inflows += (step * v,)
        ys += (skip * v,)
    for n in range(N):
        at = n * channels + channel
        rate = tl.load(rates + at, mask=channel < channels, other=0)
        h = tl.load(before + chunk * N * channels + at, mask=channel < channels, other=0)
        at_b, at_c, sums = b + n, c + n, ()
        for t in tl.static_range(LENGTH):
            h = tl.exp(steps[t] * rate) * h + inflows[t] * number(at_b, t, count)
            sums += (ys[t] + h * number(at_c, t, count),)
            at_b, at_c = at_b + b_token, at_c + c_token
        ys = sums
    y += (row * tokens + start) * channels
    for t in tl.static_range(LENGTH):
        mask = channel + tl.where(t < count, 0, channels) < channels
        tl.store(y + t * channels + channel, ys[t].to(y.dtype.element_ty), mask=mask)


@triton.jit
def _step_kernel(
    u, dt, a, b, c, d, old, new, y, channels, u_row, u_channel, dt_row, dt_channel, a_channel, a_n,
    b_row, b_n, c_row, c_n, d_channel, N: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    row = program // across
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    n = tl.arange(0, COLUMNS)
    inside = channel < channels
    both = inside[:, None] & (n < N)[None, :]
    v = tl.load(u + row * u_row + channel * u_channel, mask=inside, other=0).to(tl.float32)
    step = tl.load(dt + row * dt_row + channel * dt_channel, mask=inside, other=0).to(tl.float32)
    rate = tl.load(a + channel[:, None] * a_channel + n[None, :] * a_n, mask=both, other=0).to(tl.float32)
    key = tl.load(b + row * b_row + n * b_n, mask=n < N, other=0).to(tl.float32)
    query = tl.load(c + row * c_row + n * c_n, mask=n < N, other=0).to(tl.float32)
    at = (row * channels + channel)[:, None] * N + n[None, :]
    h = tl.load(old + at, mask=both, other=0).to(tl.float32) * tl.exp(step[:, None] * rate)
    h += (step * v)[:, None] * key[None, :]
    tl.store(new + at, h, mask=both)
    total = tl.sum(h * query[None, :], 1)
    total += tl.load(d + channel * d_channel, mask=inside, other=0).to(tl.float32) * v
    tl.store(y + row * channels + channel, total.to(y.dtype.element_ty), mask=inside)


VARIANTS = (
    *selective_scan_backward.VARIANTS,
    Variant(
        _pass_kernel,
        {"added": "*fp32:16", "initial": "*fp32:16", "totals": "*fp32:16", "rates": "*fp32:16", "before": "*fp32:16"}
        | {"last": "*fp32:16", "first": "*i32:16", "per_row": "i32", "channels": "i32:16"},
        {"N": 16, "WIDTH": 256},
    ),
    Variant(_outputs_kernel, {**TYPES, **STRIDES}, {"N": 16, "WIDTH": 128, "LENGTH": CHUNK}),
    Variant(
        _step_kernel,
        {"u": "*bf16:16", "dt": "*fp32:16", "a": "*fp32:16", "b": "*bf16:16", "c": "*bf16:16", "d": "*fp32:16"}
        | {"old": "*fp32:16", "new": "*fp32:16", "y": "*bf16:16", "channels": "i32:16", "a_channel": "i32:16"}
        | dict.fromkeys(("u_row", "dt_row", "b_row", "c_row"), "i32:16"),
        {"N": 16, "WIDTH": 64, "COLUMNS": 16}
        | dict.fromkeys(("u_channel", "dt_channel", "a_n", "b_n", "c_n", "d_channel"), 1),
    ),
)
