"""Mamba's scan backward in Triton.

With w_t = exp(dt_t a) and g the gradient of y, that of the state is e_t = g_t c_t + w_{t+1} e_{t+1}, and

    du_t = dt_t Σ_n e_t b_t + d g_t            ddt_t = u_t Σ_n e_t b_t + Σ_n a w_t h_{t-1} e_t
    db_t = Σ_channels dt_t u_t e_t             dc_t = Σ_channels g_t h_t            da = Σ_t dt_t w_t h_{t-1} e_t

One kernel has a thread for each channel, which goes over n, and makes du, ddt and da; another one for each n and chunk,
which goes over channels, and makes db and dc: so nothing is summed across threads. Both make a chunk's 16 states again
from that before it. A channel's token costs in memory: u read twice, dt and g three times, du and ddt written, and
2 N bytes for states, their gradients and da.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels import selective_scan_chunks
from hybridc.runtime.kernels.selective_scan_chunks import CHUNK, STRIDES, TYPES, chunk_states, number, vector
from hybridc.runtime.kernels.ssd_chunks import Chunks, of_document, place
from hybridc.runtime.kernels.variant import Variant

SPLIT = 256
"""Channels over which one program of `_projections_kernel` sums."""


def selective_scan_backward(
    grad: Tensor,
    u: Tensor,
    dt: Tensor,
    rates: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    totals: Tensor,
    before: Tensor,
    chunks: Chunks,
) -> tuple[Tensor, ...]:
    """Gradients of u, dt, a (fp32), b, c and d, out of y's [B, S, D] and of what the forward has kept."""
    channels, size = u.shape[2], b.shape[2]
    new = {"dtype": torch.float32, "device": u.device}
    behind = _pass_back(chunk_states(grad, dt, c, rates, chunks, None), totals, rates, chunks)

    du, ddt = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (u, dt))
    da, dd = torch.empty(chunks.count, size, channels, **new), torch.empty(chunks.count, channels, **new)
    width = min(128, triton.next_power_of_2(channels))
    strides = (*grad.stride()[:2], *u.stride()[:2], *dt.stride()[:2], *b.stride()[:2], *c.stride()[:2])
    _channels_kernel[(chunks.count * triton.cdiv(channels, width),)](
        grad, u, dt, rates, b, c, d, before, behind, du, ddt, da, dd, *chunks.places(), channels, *strides,
        N=size, WIDTH=width, LENGTH=CHUNK,
    )  # fmt: skip

    splits = triton.cdiv(channels, SPLIT)
    db, dc = (torch.empty(splits, *t.shape, **new) for t in (b, c))
    lanes = min(128, triton.next_power_of_2(chunks.count * size))
    _projections_kernel[(triton.cdiv(chunks.count * size, lanes) * splits,)](
        grad, u, dt, rates, b, c, before, behind, db, dc, *chunks.places(), channels, chunks.count, db.stride(0),
        *strides, N=size, LANES=lanes, CHANNELS=SPLIT, LENGTH=CHUNK,
    )  # fmt: skip
    return du, ddt, da.sum(0).t(), db.sum(0).to(b.dtype), dc.sum(0).to(c.dtype), dd.sum(0).to(d.dtype)


def _pass_back(added: Tensor, totals: Tensor, rates: Tensor, chunks: Chunks) -> Tensor:
    """The gradients of the states behind the chunks, like `added` [chunks, N, D]."""
    size, channels = added.shape[1:]
    behind = torch.empty_like(added)
    width = min(256, triton.next_power_of_2(channels))
    _pass_back_kernel[(chunks.documents * size * triton.cdiv(channels, width),)](
        added, totals, rates, behind, chunks.first, chunks.per_row, channels, N=size, WIDTH=width
    )
    return behind


@triton.jit
def _pass_back_kernel(
    added, totals, rates, behind, first, per_row, channels, N: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    n, document = (program // across) % N, program // across // N
    inside = channel < channels
    rate = tl.load(rates + n * channels + channel, mask=inside, other=0)
    grad = tl.zeros((WIDTH,), tl.float32)
    begin, end = of_document(first, per_row, document)
    for back in tl.range(0, end - begin, num_stages=3):
        chunk = end - 1 - back
        at = (chunk * N + n) * channels + channel
        tl.store(behind + at, grad, mask=inside)
        decay = tl.exp(rate * tl.load(totals + chunk * channels + channel, mask=inside, other=0))
        grad = grad * decay + tl.load(added + at, mask=inside, other=0)


@triton.jit
def _channels_kernel(
    grad, u, dt, rates, b, c, d, before, behind, du, ddt, da, dd, spans, per_row, tokens, channels,
    grad_row, grad_token, u_row, u_token, dt_row, dt_token, b_row, b_token, c_row, c_token,
    N: tl.constexpr, WIDTH: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    chunk = program // across
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    inside = channel < channels
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    grad += row * grad_row + start * grad_token
    u += row * u_row + start * u_token
    dt += row * dt_row + start * dt_token
    b += row * b_row + start * b_token
    c += row * c_row + start * c_token
    steps, us, gs, through_b, through_a = (), (), (), (), ()
    for t in tl.static_range(LENGTH):
        steps += (vector(dt, t, count, dt_token, channel, channels),)
        us += (vector(u, t, count, u_token, channel, channels),)
        gs += (vector(grad, t, count, grad_token, channel, channels),)
        through_b += (tl.zeros((WIDTH,), tl.float32),)
        through_a += (tl.zeros((WIDTH,), tl.float32),)
    for n in range(N):
        at = n * channels + channel
        own = chunk * N * channels + at
        rate = tl.load(rates + at, mask=inside, other=0)
        h = tl.load(before + own, mask=inside, other=0)
        at_b, at_c = b + n, c + n + LENGTH * c_token
        kept, decays = (), ()  # w_t h_{t-1}, and w_t
        for t in tl.static_range(LENGTH):
            decay = tl.exp(steps[t] * rate)
            decays += (decay,)
            kept += (decay * h,)
            h = decay * h + steps[t] * us[t] * number(at_b, t, count)
            at_b += b_token
        e = tl.load(behind + own, mask=inside, other=0)
        total = tl.zeros((WIDTH,), tl.float32)
        # the tuples of sums run backwards in time, as this loop does
        sums_b, sums_a = (), ()
        for t in tl.static_range(LENGTH - 1, -1, -1):
            at_b, at_c = at_b - b_token, at_c - c_token
            e += gs[t] * number(at_c, t, count)
            sums_b += (through_b[LENGTH - 1 - t] + e * number(at_b, t, count),)
            change = e * kept[t]
            sums_a += (through_a[LENGTH - 1 - t] + change * rate,)
            total += change * steps[t]
            e *= decays[t]
        through_b, through_a = sums_b, sums_a
        tl.store(da + own, total, mask=inside)
    skip = tl.load(d + channel, mask=inside, other=0).to(tl.float32)
    du += (row * tokens + start) * channels
    ddt += (row * tokens + start) * channels
    total = tl.zeros((WIDTH,), tl.float32)
    for t in tl.static_range(LENGTH - 1, -1, -1):
        total += gs[t] * us[t]
        mask = channel + tl.where(t < count, 0, channels) < channels
        to_u = steps[t] * through_b[LENGTH - 1 - t] + skip * gs[t]
        tl.store(du + t * channels + channel, to_u.to(du.dtype.element_ty), mask=mask)
        to_dt = us[t] * through_b[LENGTH - 1 - t] + through_a[LENGTH - 1 - t]
        tl.store(ddt + t * channels + channel, to_dt.to(ddt.dtype.element_ty), mask=mask)
    tl.store(dd + chunk * channels + channel, total, mask=inside)


@triton.jit
def _projections_kernel(
    grad, u, dt, rates, b, c, before, behind, db, dc, spans, per_row, tokens, channels, chunks, plane,
    grad_row, grad_token, u_row, u_token, dt_row, dt_token, b_row, b_token, c_row, c_token,
    N: tl.constexpr, LANES: tl.constexpr, CHANNELS: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    splits = tl.cdiv(channels, CHANNELS)
    program = tl.program_id(0).to(tl.int64)
    split = program % splits
    lane = program // splits * LANES + tl.arange(0, LANES)
    n = lane % N
    real = lane // N < chunks
    chunk = tl.where(real, lane // N, 0)
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    count = tl.where(real, count, 0)
    grad += row * grad_row + start * grad_token
    u += row * u_row + start * u_token
    dt += row * dt_row + start * dt_token
    b += row * b_row + start * b_token + n
    c += row * c_row + start * c_token + n
    own = (chunk * N + n) * channels
    out = split * plane + (row * tokens + start) * N + n
    bs, cs, dbs, dcs = (), (), (), ()
    for t in tl.static_range(LENGTH):
        bs += (tl.load(b + t * b_token, mask=t < count, other=0).to(tl.float32),)
        cs += (tl.load(c + t * c_token, mask=t < count, other=0).to(tl.float32),)
        dbs += (tl.zeros((LANES,), tl.float32),)
        dcs += (tl.zeros((LANES,), tl.float32),)
    for channel in range(split * CHANNELS, tl.minimum(split * CHANNELS + CHANNELS, channels)):
        rate = tl.load(rates + n * channels + channel)
        h = tl.load(before + own + channel)
        e = tl.load(behind + own + channel)
        # pointers that walk: with one for each token, registers would not do
        at_dt, at_u, at_grad = dt + channel, u + channel, grad + channel
        decays, inflows, gs, sums_c = (), (), (), ()
        for t in tl.static_range(LENGTH):
            step = tl.load(at_dt, mask=t < count, other=0).to(tl.float32)
            inflow = step * tl.load(at_u, mask=t < count, other=0).to(tl.float32)
            g = tl.load(at_grad, mask=t < count, other=0).to(tl.float32)
            at_dt, at_u, at_grad = at_dt + dt_token, at_u + u_token, at_grad + grad_token
            decay = tl.exp(step * rate)
            h = decay * h + inflow * bs[t]
            decays += (decay,)
            inflows += (inflow,)
            gs += (g,)
            sums_c += (dcs[t] + g * h,)
        sums_b = ()  # backwards in time
        for t in tl.static_range(LENGTH - 1, -1, -1):
            e += gs[t] * cs[t]
            sums_b += (dbs[LENGTH - 1 - t] + e * inflows[t],)
            e *= decays[t]
        dbs, dcs = sums_b, sums_c
    out = split * plane + (row * tokens + start) * N + n
    for t in tl.static_range(LENGTH):
        tl.store(db + out + t * N, dbs[LENGTH - 1 - t], mask=t < count)
        tl.store(dc + out + t * N, dcs[t], mask=t < count)


_TYPES = {**TYPES, **STRIDES, "grad": "*bf16:16", "behind": "*fp32:16", "grad_row": "i32:16", "grad_token": "i32:16"}
VARIANTS = (
    *selective_scan_chunks.VARIANTS,
    Variant(
        _pass_back_kernel,
        {"added": "*fp32:16", "totals": "*fp32:16", "rates": "*fp32:16", "behind": "*fp32:16", "first": "*i32:16"}
        | {"per_row": "i32", "channels": "i32:16"},
        {"N": 16, "WIDTH": 256},
    ),
    Variant(
        _channels_kernel,
        {k: v for k, v in _TYPES.items() if k != "y"}
        | {"du": "*bf16:16", "ddt": "*fp32:16", "da": "*fp32:16", "dd": "*fp32:16"},
        {"N": 16, "WIDTH": 128, "LENGTH": CHUNK},
    ),
    Variant(
        _projections_kernel,
        {k: v for k, v in _TYPES.items() if k not in ("y", "d")}
        | {"db": "*fp32:16", "dc": "*fp32:16", "chunks": "i32:16", "plane": "i64:16"},
        {"N": 16, "LANES": 128, "CHANNELS": SPLIT, "LENGTH": CHUNK},
    ),
)
