"""FP8 operands of experts' products: bytes sorted by expert, and scales that are one for all of an expert's rows.

Scales, saturation, infinities and NaN are as in `fp8_quantize`. For compute capability 9.0 and 10.0.

Traffic: `permute_quantized` reads each token's bytes and scales once and writes them once for each of its choices.
`quantize_by_expert` reads x twice, once for the amax, and writes each result once.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.expert_tiles import expert_of, lanes, tiles
from hybridc.runtime.kernels.fp8_quantize import BLOCK, LARGEST, cast, rounds, scale_of, sizes
from hybridc.runtime.kernels.fp8_quantize_wide import Over
from hybridc.runtime.kernels.moe import Sorted, block_of, fill
from hybridc.runtime.kernels.variant import Variant


def permute_quantized(data: Tensor, scale: Tensor, to: Sorted) -> tuple[Tensor, Tensor]:
    """data [T, C] of bytes and scale fp32 [T, G] -> [rows, C] and [rows, G]: each token at its choices' places.

    Rows without a token are zeros. The scales of one group of channels lie next to each other in memory, as
    `fp8_grouped_gemm` reads them.
    """
    (tokens, width), groups, experts = data.shape, scale.shape[1], to.counts.shape[0]
    out = torch.empty((to.rows, width), dtype=data.dtype, device=data.device)
    out_scale = torch.zeros((groups, to.rows), dtype=torch.float32, device=data.device)
    if to.rows:
        block = block_of(width)
        _permute_kernel[(tokens + experts, triton.cdiv(width, block))](
            data.view(torch.uint8), scale, to.places, to.offsets, to.counts, out.view(torch.uint8), out_scale,
            tokens, experts, to.rows, width, groups, *data.stride(), *scale.stride(),
            K=to.places.shape[1], BLOCK=block, GROUPS=triton.next_power_of_2(groups),
        )  # fmt: skip
    return out, out_scale.t()


def quantize_by_expert(
    x: Tensor,
    offsets: Tensor,
    format: torch.dtype = torch.float8_e4m3fn,
    *,
    whole: bool,
    pow2: bool = False,
    align: int = 1,
    over: Over = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x [T, C], sorted by expert -> data [T, C] and scale [T, 1], data_t [C, U] and scale_t [C, tiles].

    Each expert's rows have one scale (`whole`, the tensor recipe), or one for each channel (the row recipe; only
    data_t and scale_t are made then, and the others are empty). U and tiles are those of
    `fp8_quantize.quantize_both_ways`, and so is `align`: the tiles of an expert repeat its scale. Rows behind the last
    offset have no numbers. `over` makes the amax of all of an expert's channels of that of those which are here.
    """
    (t, c), device, experts = x.shape, x.device, offsets.shape[0] - 1
    padded = triton.cdiv(t, 16) * 16
    data = torch.empty((t if whole else 0, c), dtype=format, device=device)
    scale = torch.ones((data.shape[0], 1), dtype=torch.float32, device=device)
    data_t = torch.empty((c, padded), dtype=format, device=device)
    scale_t = torch.ones((tiles(padded, experts, BLOCK), c), dtype=torch.float32, device=device)
    amax = torch.empty((experts, c), dtype=torch.float32, device=device)
    if t and c:
        across = triton.cdiv(c, BLOCK)
        _amax_kernel[(experts, triton.cdiv(c, 32))](x, offsets, amax, c, *x.stride(), BLOCK_T=BLOCK, BLOCK_C=32)
        if whole:
            amax = amax.amax(1, keepdim=True)
            amax = (amax if over is None else over(amax)).expand(experts, c)
        _apply_kernel[(tiles(padded, experts, BLOCK) * across,)](
            x, offsets, amax, data, scale, data_t, scale_t, t, padded, c, experts, *x.stride(), *amax.stride(),
            LARGEST=LARGEST[format], POW2=pow2, BLOCK=BLOCK, WHOLE=whole, LANES=lanes(experts),
            ALIGN=math.gcd(align, BLOCK), ROUND=rounds(), num_warps=16,
        )  # fmt: skip
    return data, scale, data_t, scale_t.t()


@triton.jit
def _permute_kernel(
    data, scale, places, offsets, counts, out, out_scale, tokens, experts, rows, width, groups,
    stride_t, stride_d, stride_st, stride_sg, K: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Some bytes of one token and, in the first such program, its scales; or an expert's rows without a token."""
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    t = tl.program_id(0).to(tl.int64)
    if t < tokens:
        value = tl.load(data + t * stride_t + d.to(tl.int64) * stride_d, mask=d < width, other=0)
        g = tl.arange(0, GROUPS)
        many = tl.where(tl.program_id(1) == 0, groups, 0)
        found = tl.load(scale + t * stride_st + g.to(tl.int64) * stride_sg, mask=g < many, other=0.0)
        for j in tl.static_range(K):
            place = tl.load(places + t * K + j).to(tl.int64)
            tl.store(out + place * width + d, value, mask=d < tl.where(place >= 0, width, 0))
            tl.store(out_scale + g.to(tl.int64) * rows + place, found, mask=g < tl.where(place >= 0, many, 0))
    else:
        fill(out, offsets, counts, tl.program_id(0) - tokens, experts, rows, width, d, BLOCK)


@triton.jit
def _amax_kernel(
    x, offsets, amax, channels, stride_t, stride_c, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """Some channels of one expert."""
    expert = tl.program_id(0)
    c = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)).to(tl.int64)
    t = tl.arange(0, BLOCK_T).to(tl.int64)
    end = tl.load(offsets + expert + 1)
    found = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
    for start in range(tl.load(offsets + expert), end, BLOCK_T):
        at = start + t
        mask = (at < end)[:, None] & (c < channels)[None, :]
        value = tl.load(x + at[:, None] * stride_t + c[None, :] * stride_c, mask=mask, other=0.0).to(tl.float32)
        found = tl.maximum(found, sizes(value))
    tl.store(amax + expert.to(tl.int64) * channels + c, tl.max(found, 0), mask=c < channels)


@triton.jit
def _apply_kernel(
    x, offsets, amax, data, scale, data_t, scale_t, tokens, padded, channels, experts,
    stride_t, stride_c, stride_ae, stride_ac,
    LARGEST: tl.constexpr, POW2: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr, LANES: tl.constexpr,
    ALIGN: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """One tile of BLOCK rows of one expert and BLOCK channels."""
    across = tl.cdiv(channels, BLOCK)
    tile, part = tl.program_id(0) // across, tl.program_id(0) % across
    expert, first, end = expert_of(tile, offsets, experts, padded, BLOCK, LANES)
    if (first >= end) | (expert >= experts):
        return
    begin = tl.load(offsets + expert)
    slot = begin // BLOCK + expert + (first - begin) // BLOCK
    t = tl.multiple_of(first, ALIGN) + tl.arange(0, BLOCK)
    c = part * BLOCK + tl.arange(0, BLOCK)
    wide = t.to(tl.int64)
    real_t, real_c = t < tl.minimum(end, tokens), c < channels
    inside = real_t[:, None] & real_c[None, :]
    value = tl.load(x + wide[:, None] * stride_t + c.to(tl.int64)[None, :] * stride_c, mask=inside, other=0.0)
    largest = tl.load(amax + expert.to(tl.int64) * stride_ae + c * stride_ac, mask=real_c, other=0.0)
    many, found = scale_of(largest, LARGEST, POW2)
    made = cast(value.to(tl.float32) * many[None, :], data_t.dtype.element_ty, LARGEST, ROUND)
    if WHOLE:
        tl.store(data + wide[:, None] * channels + c[None, :], made, mask=inside)
        if part == 0:  # every channel has the same
            one = tl.sum(tl.where(c == 0, found, 0.0))
            tl.store(scale + wide, tl.zeros((BLOCK,), tl.float32) + one, mask=real_t)
    at = c.to(tl.int64)[:, None] * padded + t[None, :]
    tl.store(data_t + at, tl.trans(made), mask=real_c[:, None] & (t < end)[None, :])
    tl.store(scale_t + slot.to(tl.int64) * channels + c, found, mask=real_c)


def _variants() -> tuple[Variant, ...]:
    where = {"places": "*i32:16", "offsets": "*i32:16", "counts": "*i32:16", "experts": "i32"}
    made = [
        Variant(
            _permute_kernel,
            {"data": "*u8:16", "scale": "*fp32:16", "out": "*u8:16", "out_scale": "*fp32:16", "tokens": "i32",
             "rows": "i32", "width": "i32:16", "groups": "i32", "stride_t": "i32:16", step: "i32:16", **where},
            {"K": 8, "BLOCK": 2048, "GROUPS": 32, "stride_d": 1, other: 1}, 4, 3, (90, 100), name,
        )
        for name, step, other in (("permute", "stride_sg", "stride_st"), ("permute_rows", "stride_st", "stride_sg"))
    ]  # fmt: skip
    made.append(
        Variant(
            _amax_kernel,
            {"x": "*bf16:16", "offsets": "*i32:16", "amax": "*fp32:16", "channels": "i32:16", "stride_t": "i32:16"},
            {"stride_c": 1, "BLOCK_T": BLOCK, "BLOCK_C": 32}, 4, 3, (90, 100), "amax",
        )
    )  # fmt: skip
    for kind, largest in (("fp8e4nv", 448.0), ("fp8e5", 57344.0)):
        for whole in (False, True):
            made.append(
                Variant(
                    _apply_kernel,
                    {"x": "*bf16:16", "offsets": "*i32:16", "amax": "*fp32:16", "data": f"*{kind}:16",
                     "scale": "*fp32:16", "data_t": f"*{kind}:16", "scale_t": "*fp32:16", "tokens": "i32",
                     "padded": "i32:16", "channels": "i32:16", "experts": "i32", "stride_t": "i32:16"}
                    | ({"stride_ac": "i32"} if whole else {"stride_ae": "i32:16"}),
                    {"stride_c": 1, "LARGEST": largest, "POW2": False, "BLOCK": BLOCK, "WHOLE": whole,
                     "LANES": lanes(128), "ALIGN": 16, "ROUND": False, ("stride_ae" if whole else "stride_ac"): 1},
                    16, 3, (90, 100), f"{'expert' if whole else 'channels'}:{kind}",
                )
            )  # fmt: skip
    return tuple(made)


VARIANTS = _variants()
