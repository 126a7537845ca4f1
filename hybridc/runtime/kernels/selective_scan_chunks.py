"""What chunks add to Mamba's states, forward and backward in time, and how its kernels read a chunk."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.ssd_chunks import Chunks, place
from hybridc.runtime.kernels.variant import Variant

CHUNK = 16
"""Tokens of a chunk: a thread holds all of them."""


def chunk_states(x: Tensor, dt: Tensor, k: Tensor, rates: Tensor, chunks: Chunks, totals: Tensor | None) -> Tensor:
    """x and dt [B, S, D], k [B, S, N], rates [N, D] -> what each chunk adds to a state, [chunks, N, D] fp32.

    With `totals` [chunks, D], which gets the chunks' sums of dt, that is Σ_t decay(t to the end) dt_t x_t k_t behind
    the chunk; without, for the gradient x of y and k = c, Σ_t decay(start to t) x_t k_t before it.
    """
    channels, size = x.shape[2], k.shape[2]
    out = torch.empty(chunks.count, size, channels, dtype=torch.float32, device=x.device)
    width = min(128, triton.next_power_of_2(channels))
    _states_kernel[(chunks.count * triton.cdiv(channels, width),)](
        x, dt, rates, k, totals, out, *chunks.places(), channels, *x.stride()[:2], *dt.stride()[:2], *k.stride()[:2],
        N=size, WIDTH=width, LENGTH=CHUNK,
    )  # fmt: skip
    return out


@triton.jit
def vector(base, t, count, stride, channel, channels):
    """fp32 [channels] of a chunk's token, zeros where it has none."""
    mask = channel + tl.where(t < count, 0, channels) < channels
    return tl.load(base + t * stride + channel, mask=mask, other=0).to(tl.float32)


@triton.jit
def number(at, t, count):
    """What lies there for a chunk's token, fp32, zero where it has none. `at` walks from token to token: pointers to
    all of them would take registers that the loops need."""
    return tl.load(at, mask=t < count, other=0).to(tl.float32)


@triton.jit
def _states_kernel(
    x, dt, rates, k, totals, out, spans, per_row, tokens, channels, x_row, x_token, dt_row, dt_token, k_row, k_token,
    N: tl.constexpr, WIDTH: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(channels, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    chunk = program // across
    channel = (program % across).to(tl.int32) * WIDTH + tl.arange(0, WIDTH)
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    x += row * x_row + start * x_token
    dt += row * dt_row + start * dt_token
    k += row * k_row + start * k_token
    steps, inflows = (), ()
    total = tl.zeros((WIDTH,), tl.float32)
    for t in tl.static_range(LENGTH):
        step = vector(dt, t, count, dt_token, channel, channels)
        v = vector(x, t, count, x_token, channel, channels)
        total += step
        steps += (step,)
        if totals is None:
            inflows += (v,)
        else:
            inflows += (step * v,)
    if totals is not None:
        tl.store(totals + chunk * channels + channel, total, mask=channel < channels)
    for n in range(N):
        at = n * channels + channel
        rate = tl.load(rates + at, mask=channel < channels, other=0)
        h = tl.zeros((WIDTH,), tl.float32)
        if totals is None:
            at_k = k + n + LENGTH * k_token
            for t in tl.static_range(LENGTH - 1, -1, -1):
                at_k -= k_token
                h = (h + inflows[t] * number(at_k, t, count)) * tl.exp(steps[t] * rate)
        else:
            at_k = k + n
            for t in tl.static_range(LENGTH):
                h = h * tl.exp(steps[t] * rate) + inflows[t] * number(at_k, t, count)
                at_k += k_token
        tl.store(out + chunk * N * channels + at, h, mask=channel < channels)


STRIDES = dict.fromkeys(
    (*(f"{name}_{axis}" for name in ("u", "dt", "b", "c") for axis in ("row", "token")), "channels", "tokens"), "i32:16"
) | {"per_row": "i32"}
TYPES = {"u": "*bf16:16", "dt": "*fp32:16", "rates": "*fp32:16", "b": "*bf16:16", "c": "*bf16:16", "d": "*fp32:16"}
TYPES |= {"before": "*fp32:16", "y": "*bf16:16", "spans": "*i32:16"}

VARIANTS = tuple(
    Variant(
        _states_kernel,
        {"x": "*bf16:16", "dt": "*fp32:16", "rates": "*fp32:16", "k": "*bf16:16", "out": "*fp32:16", "spans": "*i32:16"}
        | ({} if back else {"totals": "*fp32:16"})
        | dict.fromkeys(("x_row", "x_token", "dt_row", "dt_token", "k_row", "k_token"), "i32:16")
        | {"channels": "i32:16", "tokens": "i32:16", "per_row": "i32"},
        {"N": 16, "WIDTH": 128, "LENGTH": CHUNK} | ({"totals": None} if back else {}),
        name=f"_states_kernel_{'back' if back else 'forward'}",
    )
    for back in (False, True)
)
