"""Tensors as FP8 with a scale for each group of channels, or for each 128 x 128 block (the block128 and mx recipes).

A value is `data · scale`. With `largest` the format's largest number (448 for E4M3, 57344 for E5M2):

- The amax of a group is that of its numbers, and zeros stand in for what a group at an edge lacks. scale = 1 / m with
  m = largest / amax, both divisions rounded to nearest in fp32, as in Transformer Engine's blockwise recipe. m is at
  most 2¹²⁶, so that a scale is never subnormal.
- `pow2`: the scale is the least power of two, from 2⁻¹²⁶, with which nothing saturates: what E8M0 holds, as fp32.
- An amax of 0 or infinity gives scale 1.
- Numbers are clamped to ±largest, so infinities become ±largest, then rounded to nearest, ties to even.
- A NaN stays a NaN where it is, and has no say in its group's scale.

All formats are for compute capability 9.0 and 10.0. Each kernel reads its input once and writes each output once.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.expert_tiles import expert_of, lanes, tiles
from hybridc.runtime.kernels.variant import Variant
from hybridc.runtime.quant.elements import ELEMENTS
from hybridc.runtime.quant.scaling import Scaling, quantize

LARGEST = {e.dtype: e.largest for e in ELEMENTS.values()}
"""The formats, and the largest number of each."""

BLOCK = 128
"""Rows and columns of a tile: the block of a weight's scale, and tokens of a group over tokens."""


def quantize_groups(
    x: Tensor,
    format: torch.dtype = torch.float8_e4m3fn,
    *,
    group: int = 128,
    pow2: bool = False,
) -> tuple[Tensor, Tensor]:
    """x [..., C] -> data [..., C] and scale fp32 [..., ⌈C / group⌉], one for each `group` (a divisor of 128) channels.

    The scales of one group of channels lie next to each other in memory, as the GEMMs read them.
    """
    flat = x.flatten(0, -2)
    data, scale, _, _ = _groups(flat, None, format, group, pow2, columns=False)
    return data.view(x.shape), scale.unflatten(0, x.shape[:-1]) if x.ndim != 2 else scale


def quantize_both_ways(
    x: Tensor,
    format: torch.dtype = torch.float8_e4m3fn,
    *,
    group: int = 128,
    pow2: bool = False,
    offsets: Tensor | None = None,
    align: int = 1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x [T, C] for the products that contract channels, and transposed for the weight gradient, which contracts tokens.

    -> data [T, C] and scale [T, ⌈C / group⌉] as from `quantize_groups`, then data_t [C, U] and scale_t [C, tiles] with
    U = 16 ⌈T / 16⌉, filled up with zeros, so that rows are read 16 bytes at once. Each `group` tokens have a scale:
    ⌈T / group⌉ tiles, or with `offsets` int32 [experts + 1] the groups of each expert for itself, numbered as in
    `expert_tiles` for U rows. x is read once for all of them. `align` is a number that all offsets are multiples of;
    with 16 data_t is written 16 bytes at once.
    """
    return _groups(x, offsets, format, group, pow2, columns=True, align=align)


def quantize_blocks(
    weight: Tensor, format: torch.dtype = torch.float8_e4m3fn, *, pow2: bool = False, transposed: bool = False
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]:
    """weight [..., N, K] -> data [..., N, K] and scale fp32 [..., ⌈N / 128⌉, ⌈K / 128⌉], one for each 128 x 128 block.

    With `transposed` also data [..., K, N] and scale [..., ⌈K / 128⌉, ⌈N / 128⌉], the same numbers, for the gradient of
    the input.
    """
    w = weight.reshape(-1, *weight.shape[-2:])
    count, n, k = w.shape
    down, across = triton.cdiv(n, BLOCK), triton.cdiv(k, BLOCK)
    data = torch.empty(w.shape, dtype=format, device=w.device)
    turned = torch.empty((count, k, n), dtype=format, device=w.device) if transposed else data
    scale = torch.empty((count, down, across), dtype=torch.float32, device=w.device)
    if scale.numel():
        _blocks_kernel[(scale.numel(),)](
            w, data, turned, scale, n, k, *w.stride(),
            LARGEST=LARGEST[format], POW2=pow2, TRANSPOSED=transposed, BLOCK=BLOCK, ROUND=rounds(), num_warps=16,
        )  # fmt: skip
    outer = weight.shape[:-2]
    found = data.view(weight.shape), scale.view(*outer, down, across)
    return (*found, turned.view(*outer, k, n), found[1].transpose(-1, -2)) if transposed else found


def quantize_reference(
    x: Tensor, format: torch.dtype = torch.float8_e4m3fn, *, block: tuple[int, int] = (1, 128), pow2: bool = False
) -> tuple[Tensor, Tensor]:
    """x [M, K] -> data [M, K] and scale [⌈M / rows⌉, ⌈K / columns⌉] with a scale for each block of rows x columns.

    What the kernels must equal to the last bit: the emulation that runs where there is no device."""
    element = next(e for e in ELEMENTS.values() if e.dtype == format)
    made = quantize(x, element, Scaling(*block, pow2))
    return made.values.view(torch.uint8)[: x.shape[0], : x.shape[1]].contiguous().view(format), made.factors


def _groups(x, offsets, format, group, pow2, *, columns, align=1):
    (t, c), device = x.shape, x.device
    experts, padded = 0 if offsets is None else offsets.shape[0] - 1, triton.cdiv(t, 16) * 16
    down, across = triton.cdiv(t, BLOCK) if offsets is None else tiles(padded, experts, BLOCK), triton.cdiv(c, BLOCK)
    slots = triton.cdiv(t, group) if offsets is None else tiles(padded, experts, group)
    data = torch.empty((t, c), dtype=format, device=device)
    scale = torch.empty((triton.cdiv(c, group), padded), dtype=torch.float32, device=device)
    data_t = torch.empty((c, padded), dtype=format, device=device) if columns else data
    # ones where no group is: read by nobody, but defined
    scale_t = torch.ones((slots, c), dtype=torch.float32, device=device) if columns else scale
    if t and c:
        _groups_kernel[(down * across,)](
            x, offsets if experts else x, data, scale, data_t, scale_t, t, padded, c, experts, *x.stride(),
            LARGEST=LARGEST[format], POW2=pow2, GROUP=group, BLOCK=BLOCK, COLUMNS=columns,
            LANES=lanes(experts) if experts else 0, ALIGN=math.gcd(align, BLOCK), ROUND=rounds(), num_warps=16,
        )  # fmt: skip
    return data, scale[:, :t].t(), data_t, scale_t.t()


def rounds() -> bool:
    """Whether kernels must round by themselves: the interpreter's cast to FP8 rounds ties up, and loses a carry out of
    the mantissa, where a device rounds as it should."""
    return triton.knobs.runtime.interpret


@triton.jit
def scale_of(amax, LARGEST: tl.constexpr, POW2: tl.constexpr):
    """What numbers are multiplied by before the cast, and the scale, of groups with these amax."""
    usual = (amax > 0.0) & (amax < float("inf"))
    amax = tl.where(usual, amax, 1.0)
    if POW2:
        # both formats end at 1.75 · 2ᵉ: amax / largest is over a power of two if its mantissa is over 1.75
        bits = amax.to(tl.int32, bitcast=True)
        exponent = (bits >> 23) + ((bits & 0x7FFFFF) > 0x600000).to(tl.int32) - (15 if LARGEST > 448.0 else 8)
        exponent = tl.maximum(exponent, 1)
        scale = (exponent << 23).to(tl.float32, bitcast=True)
        many = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    else:
        amax = tl.maximum(amax, LARGEST * 1.1754943508222875e-38)  # 2⁻¹²⁶
        many = tl.div_rn(tl.full(amax.shape, LARGEST, tl.float32), amax)
        scale = tl.div_rn(tl.full(amax.shape, 1.0, tl.float32), many)
    return tl.where(usual, many, 1.0), tl.where(usual, scale, 1.0)


@triton.jit
def sizes(x):
    """|x| with NaN as 0: what an amax is taken over."""
    return tl.where(x == x, tl.abs(x), 0.0)


@triton.jit
def cast(x, kind: tl.constexpr, LARGEST: tl.constexpr, ROUND: tl.constexpr):
    """x, multiplied already, as FP8 of type `kind`."""
    x = tl.where(x > LARGEST, LARGEST, tl.where(x < -LARGEST, -LARGEST, x))  # unlike a minimum, this keeps NaN
    if ROUND:
        mantissa: tl.constexpr = 2 if LARGEST > 448.0 else 3
        least: tl.constexpr = 113 if LARGEST > 448.0 else 121  # exponent, plus 127, of the least normal number
        exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 255, least) - mantissa
        # 1.5 · 2²³ times the format's step at x: its own step in fp32 is that step
        large = (((exponent + 23) << 23) | 0x400000).to(tl.float32, bitcast=True)
        # a NaN that is one in the format's bits too, with a zero behind them
        nan = tl.full(x.shape, 0x7FE00000 if LARGEST > 448.0 else 0x7FF00000, tl.int32).to(tl.float32, bitcast=True)
        x = tl.where(x == x, (x + large) - large, nan)
    return x.to(kind)


@triton.jit
def _groups_kernel(
    x_ptr, offsets, data, scale, data_t, scale_t, tokens, padded, channels, experts, stride_t, stride_c,
    LARGEST: tl.constexpr, POW2: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
    LANES: tl.constexpr, ALIGN: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """One tile of BLOCK tokens and BLOCK channels."""
    parts: tl.constexpr = BLOCK // GROUP
    across = tl.cdiv(channels, BLOCK)
    tile, part = tl.program_id(0) // across, tl.program_id(0) % across
    if LANES:
        expert, first, end = expert_of(tile, offsets, experts, padded, BLOCK, LANES)
        if first >= end:
            return
        begin = tl.load(offsets + expert)
        slot = begin // GROUP + expert + (first - begin) // GROUP
        first = tl.multiple_of(first, ALIGN)
    else:
        first, end, slot = tile * BLOCK, padded, tile * parts
    t = first + tl.arange(0, BLOCK)
    c = part * BLOCK + tl.arange(0, BLOCK)
    real_t = t < tl.minimum(end, tokens)
    inside = real_t[:, None] & (c < channels)[None, :]
    wide = t.to(tl.int64)
    x = tl.load(x_ptr + wide[:, None] * stride_t + c.to(tl.int64)[None, :] * stride_c, mask=inside, other=0.0)
    x = x.to(tl.float32)
    piece = tl.arange(0, parts)
    grouped = tl.reshape(x, (BLOCK, parts, GROUP))
    many, found = scale_of(tl.max(sizes(grouped), 2), LARGEST, POW2)
    made = tl.reshape(cast(grouped * many[:, :, None], data.dtype.element_ty, LARGEST, ROUND), (BLOCK, BLOCK))
    tl.store(data + wide[:, None] * channels + c[None, :], made, mask=inside)
    g = part * parts + piece
    at = g.to(tl.int64)[None, :] * padded + t[:, None]
    tl.store(scale + at, found, mask=real_t[:, None] & (g < tl.cdiv(channels, GROUP))[None, :])
    if COLUMNS:
        grouped = tl.reshape(x, (parts, GROUP, BLOCK))
        many, found = scale_of(tl.max(sizes(grouped), 1), LARGEST, POW2)
        made = tl.reshape(cast(grouped * many[:, None, :], data_t.dtype.element_ty, LARGEST, ROUND), (BLOCK, BLOCK))
        at = c.to(tl.int64)[:, None] * padded + t[None, :]
        tl.store(data_t + at, tl.trans(made), mask=(c < channels)[:, None] & (t < end)[None, :])
        real = first + piece * GROUP < end
        at = (slot + piece).to(tl.int64)[:, None] * channels + c[None, :]
        tl.store(scale_t + at, found, mask=real[:, None] & (c < channels)[None, :])


@triton.jit
def _blocks_kernel(
    w_ptr, data, turned, scale, rows, columns, stride_e, stride_n, stride_k,
    LARGEST: tl.constexpr, POW2: tl.constexpr, TRANSPOSED: tl.constexpr, BLOCK: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """One block of one expert's weight."""
    down, across = tl.cdiv(rows, BLOCK), tl.cdiv(columns, BLOCK)
    place = tl.program_id(0)
    expert = (place // (down * across)).to(tl.int64)
    n = (place // across % down * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    k = (place % across * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = (n < rows)[:, None] & (k < columns)[None, :]
    at = expert * stride_e + n[:, None] * stride_n + k[None, :] * stride_k
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    many, found = scale_of(tl.max(sizes(w)), LARGEST, POW2)
    made = cast(w * many, data.dtype.element_ty, LARGEST, ROUND)
    tl.store(data + expert * rows * columns + n[:, None] * columns + k[None, :], made, mask=inside)
    if TRANSPOSED:
        at = expert * rows * columns + k[:, None] * rows + n[None, :]
        tl.store(turned + at, tl.trans(made), mask=tl.trans(inside))
    tl.store(scale + place, found)


def _variants() -> tuple[Variant, ...]:
    made = []
    for kind, largest in (("fp8e4nv", 448.0), ("fp8e5", 57344.0)):
        plain = {"LARGEST": largest, "POW2": False, "BLOCK": BLOCK, "ROUND": False}
        many = {"x_ptr": "*bf16:16", "data": f"*{kind}:16", "scale": "*fp32:16"}
        sides = {
            "data_t": f"*{kind}:16",
            "scale_t": "*fp32:16",
            "tokens": "i32",
            "padded": "i32:16",
            "channels": "i32:16",
        }
        forms = ((False, 0), (True, 0), (True, 128)) if kind == "fp8e4nv" else ((True, 128),)
        made += [
            Variant(
                _groups_kernel,
                many | sides | {"offsets": "*i32:16", "experts": "i32", "stride_t": "i32:16"},
                plain | {"stride_c": 1, "GROUP": 128, "COLUMNS": columns, "ALIGN": 16,
                         "LANES": lanes(experts) if experts else 0},
                16, 2, (90, 100), f"groups{'_both_ways' * columns}{'_of_experts' * bool(experts)}:{kind}",
            )
            for columns, experts in forms
        ]  # fmt: skip
        if kind == "fp8e4nv":
            made.append(
                Variant(
                    _blocks_kernel,
                    many | {"w_ptr": "*bf16:16", "turned": f"*{kind}:16", "rows": "i32:16", "columns": "i32:16",
                            "stride_e": "i32:16", "stride_n": "i32:16"},
                    plain | {"stride_k": 1, "TRANSPOSED": True},
                    16, 2, (90, 100), f"blocks:{kind}",
                )
            )  # fmt: skip
    return tuple(made)


VARIANTS = _variants()
