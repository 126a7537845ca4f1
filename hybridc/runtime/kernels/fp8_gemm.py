"""FP8 matrix products with scales along the contracted dimension (the block128, mx, row, tensor and delayed recipes).

The scheme is that of DeepSeek-V3 (2024, section 3.3): the products of one group of 128 contracted numbers are summed by
the tensor cores, multiplied by both operands' scales of that group, and added in fp32 by the other cores, which keep
more bits than Hopper's tensor cores do over many groups. Power-of-two scales (E8M0) are fp32 numbers like others.

A scale has a dimension of size 1 where it is the same along it, so a product of operands with one scale for each row,
or for a tensor, is the same call. Both operands have the contracted dimension last, as FP8 tensor cores read them;
`fp8_quantize` writes transposed operands for the gradients. With y = x Wᵀ, quantized along what each product contracts:

    y  [T, N] = fp8_gemm(x, W)              x  1 x 128, W  128 x 128
    dx [T, K] = fp8_gemm(dy, Wᵀ)            dy 1 x 128, Wᵀ 128 x 128
    dW [N, K] = fp8_gemm(dyᵀ, xᵀ)           both 1 x 128, along tokens

Traffic: with tiles of 128 x 128, a is read ⌈N / 128⌉ and b ⌈M / 128⌉ times, mostly from the L2 cache, since programs go
through bands of 8 tiles; y is written once. Operands whose contracted dimension is not a multiple of 16 are copied
first, with zeros behind. For compute capability 9.0 and 10.0.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.expert_tiles import expert_of, lanes, tiles
from hybridc.runtime.kernels.variant import Variant

DENSE, EXPERTS, TOKENS = 0, 1, 2
"""What offsets cut into pieces: nothing, the rows of a, or the contracted dimension."""


def fp8_gemm(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    *,
    bias: Tensor | None = None,
    group: int = 128,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """a [..., K] and b [N, K], E4M3 or E5M2 -> a bᵀ + bias [..., N] in `out_dtype`.

    a_scale [..., G | 1] (or of one number) and b_scale [N | ⌈N / 128⌉ | 1, G | 1] are fp32, with G = ⌈K / group⌉ groups
    of 128 or 32 contracted numbers. bias [N].
    """
    flat = a.flatten(0, -2)
    (m, k), n = flat.shape, b.shape[0]
    y = torch.empty((m, n), dtype=out_dtype, device=a.device)
    groups = triton.cdiv(k, group)
    scale = _spread(a_scale.flatten(0, -2) if a_scale.ndim > 2 else a_scale, m, groups)
    _launch(DENSE, flat, scale, b[None], b_scale[None], bias, y[None], None, group, groups, 1)
    return y.view(*a.shape[:-1], n)


def fp8_grouped_gemm(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    offsets: Tensor,
    *,
    bias: Tensor | None = None,
    group: int = 128,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """a [M, K], sorted by expert, b [E, N, K] -> each row times its expert's b, [M, N].

    offsets int32 [E + 1], on the device: expert e has the rows from offsets[e] to offsets[e + 1], and offsets[0] is 0.
    Rows behind the last give zeros. b_scale [E, N | ⌈N / 128⌉ | 1, G | 1], bias [E, N]; the rest as in `fp8_gemm`.
    """
    (m, k), (_, n, _) = a.shape, b.shape
    y = torch.empty((m, n), dtype=out_dtype, device=a.device)
    groups = triton.cdiv(k, group)
    _launch(EXPERTS, a, _spread(a_scale, m, groups), b, b_scale, bias, y[None], offsets, group, groups, 1)
    return y


def fp8_grouped_weight_gradient(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    offsets: Tensor,
    *,
    group: int = 128,
    align: int = 1,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """a [N, T] and b [K, T], both of tokens sorted by expert -> Σ over an expert's tokens of a bᵀ, [E, N, K].

    Operands and scales [N, tiles] and [K, tiles] are `quantize_both_ways`' transposed ones with these offsets, int32
    [E + 1]. An expert without tokens gives zeros. `align` is a number that all offsets are multiples of; with 16,
    tokens are read 16 at once, and with less one by one.
    """
    experts, (n, t), k = offsets.shape[0] - 1, a.shape, b.shape[0]
    y = torch.empty((experts, n, k), dtype=out_dtype, device=a.device)
    groups = tiles(t, experts, group)
    _launch(TOKENS, a, _spread(a_scale, n, groups), b[None], b_scale[None], None, y, offsets, group, groups, align)
    return y


def fp8_gemm_reference(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, *, group: int = 128) -> Tensor:
    """`fp8_gemm` of a [M, K] without bias, in torch: fp32, and exact but for the order in which a group is summed."""
    groups = triton.cdiv(a.shape[1], group)
    left, right = _spread(a_scale, a.shape[0], groups), b_scale
    if right.numel() > 1 and right.shape[0] == triton.cdiv(b.shape[0], 128):
        right = right.repeat_interleave(128, 0)[: b.shape[0]]
    right = _spread(right, b.shape[0], groups)
    y = torch.zeros(a.shape[0], b.shape[0], device=a.device)
    for g, (x, w) in enumerate(zip(a.float().split(group, 1), b.float().split(group, 1), strict=True)):
        y += (x @ w.t()) * (left[:, g, None] * right[None, :, g])
    return y


def _spread(scale: Tensor, rows: int, groups: int) -> Tensor:
    """A scale as [rows, groups], without a copy."""
    if scale.numel() == 1:
        return scale.view(1, 1).expand(rows, groups)
    if scale.shape[0] not in (1, rows) or scale.shape[1] not in (1, groups):
        raise ValueError(f"a scale {list(scale.shape)} for {rows} rows in {groups} groups")
    return scale.expand(rows, groups)


def _loadable(x: Tensor, mode: int) -> Tensor:
    """x with its last dimension contiguous, and with zeros up to a multiple of 16 unless offsets cut it."""
    lack = -x.shape[-1] % 16
    if mode == TOKENS or not lack:
        return x if x.stride(-1) == 1 else x.contiguous()
    return torch.nn.functional.pad(x.view(torch.uint8), (0, lack)).view(x.dtype)


def _launch(mode, a, a_scale, b, b_scale, bias, y, offsets, group, groups, align):
    """y [1 | E, M, N] = a [M, K] times b [1 | E, N, K]; see the three public functions."""
    a, b = _loadable(a, mode), _loadable(b, mode)
    (m, k), n = a.shape, b.shape[1]
    blocks = triton.cdiv(n, 128)
    if b_scale.numel() == 1:
        b_scale = b_scale.view(1, 1, 1)
    by_block = b_scale.shape[1] == blocks != n
    b_scale = b_scale.expand(b.shape[0], blocks if by_block else n, groups)
    experts = 0 if offsets is None else offsets.shape[0] - 1
    block_m, block_n, warps = _blocks(m if mode != EXPERTS else m // experts)
    down = tiles(m, experts, block_m) if mode == EXPERTS else triton.cdiv(m, block_m)
    grid = down * triton.cdiv(n, block_n) * (experts if mode == TOKENS else 1)
    if m and n:
        _gemm_kernel[(grid,)](
            a, a_scale, b, b_scale, y if bias is None else bias, y, a if offsets is None else offsets,
            experts, down, m, n, k, a.stride(0), *b.stride()[:2], n if bias is not None else 0,
            y.stride(0) if mode == TOKENS else 0, *a_scale.stride(), *b_scale.stride(),
            MODE=mode, BIAS=bias is not None, B_BLOCK=128 if by_block else 1, ALIGN=math.gcd(align, group),
            LANES=lanes(experts) if mode == EXPERTS else 0, BLOCK_M=block_m, BLOCK_N=block_n, GROUP=group,
            num_warps=warps, num_stages=4,
        )  # fmt: skip


def _blocks(rows: int) -> tuple[int, int, int]:
    """The tile of a product of so many rows, and its warps. Few rows are for reading the weights in many programs."""
    if rows <= 16:
        return 16, 64, 4
    return (64, 128, 4) if rows <= 64 else (128, 128, 8)


@triton.jit
def _gemm_kernel(
    a, a_scale, b, b_scale, bias, y, offsets, experts, down, rows, columns, depth,
    stride_am, stride_be, stride_bn, stride_bias, stride_ye, stride_asm, stride_ask, stride_bse, stride_bsn, stride_bsk,
    MODE: tl.constexpr, BIAS: tl.constexpr, B_BLOCK: tl.constexpr, ALIGN: tl.constexpr, LANES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of y."""
    BAND: tl.constexpr = 8
    across = tl.cdiv(columns, BLOCK_N)
    place, expert = tl.program_id(0), 0
    if MODE == 2:
        expert, place = place // (down * across), place % (down * across)
    above = place // (BAND * across) * BAND
    height = tl.minimum(down - above, BAND)
    tile, column = above + place % (BAND * across) % height, place % (BAND * across) // height
    first, end, start, slot = tile * BLOCK_M, rows, 0, 0
    if MODE == 1:
        expert, first, end = expert_of(tile, offsets, experts, rows, BLOCK_M, LANES)
        if first >= end:
            return
        depth = tl.where(expert < experts, depth, 0)
    if MODE == 2:
        start = tl.multiple_of(tl.load(offsets + expert), ALIGN)
        depth = tl.multiple_of(tl.load(offsets + expert + 1) - start, ALIGN)
        slot = start // GROUP + expert
    e = (expert if MODE == 1 else 0) * tl.full((), 1, tl.int64)
    m = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
    n = (column * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    k = tl.arange(0, GROUP)
    real_m, real_n = m < end, n < columns
    a_at = a + m[:, None] * stride_am + (start + k)[None, :]
    b_at = b + e * stride_be + n[:, None] * stride_bn + (start + k)[None, :]
    a_scale_at = a_scale + m * stride_asm + slot.to(tl.int64) * stride_ask if MODE == 2 else a_scale + m * stride_asm
    if B_BLOCK == 1:
        b_scale_at = b_scale + e * stride_bse + n * stride_bsn
    else:  # a tile's columns have one scale
        b_scale_at = b_scale + e * stride_bse + column * BLOCK_N // B_BLOCK * stride_bsn
    if MODE == 2:
        b_scale_at += slot.to(tl.int64) * stride_bsk
    groups = tl.cdiv(depth, GROUP)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for g in range(groups):
        inside = g * GROUP + k < depth
        # scales are on their way while the products are made
        left = tl.load(a_scale_at, mask=real_m, other=0.0)
        right = tl.load(b_scale_at, mask=real_n, other=0.0) if B_BLOCK == 1 else tl.load(b_scale_at)
        av = tl.load(a_at, mask=real_m[:, None] & inside[None, :], other=0.0)
        bv = tl.load(b_at, mask=real_n[:, None] & inside[None, :], other=0.0)
        product = tl.dot(av, tl.trans(bv))
        acc += product * (left[:, None] * right[None, :] if B_BLOCK == 1 else (left * right)[:, None])
        a_scale_at += stride_ask
        b_scale_at += stride_bsk
        a_at += GROUP
        b_at += GROUP
    if BIAS:
        if MODE == 1:
            real = n < tl.where(expert < experts, columns, 0)
            acc += tl.load(bias + e * stride_bias + n, mask=real, other=0.0).to(tl.float32)[None, :]
        else:
            acc += tl.load(bias + n, mask=real_n, other=0.0).to(tl.float32)[None, :]
    at = m[:, None] * columns + n[None, :]
    if MODE == 2:
        at += expert.to(tl.int64) * stride_ye
    tl.store(y + at, acc.to(y.dtype.element_ty), mask=real_m[:, None] & real_n[None, :])


def _variants() -> tuple[Variant, ...]:
    ints = {name: "i32:16" for name in ("depth", "columns", "stride_am", "stride_be", "stride_bn")}
    scales = {"stride_ask": "i32", "stride_bse": "i32"}
    made = []

    def add(name, mode, by_block, rows, a="fp8e4nv", b="fp8e4nv", out="bf16", bias=False):
        block_m, block_n, warps = _blocks(rows)
        signature = {
            "a": f"*{a}:16", "b": f"*{b}:16", "a_scale": "*fp32:16", "b_scale": "*fp32:16", "y": f"*{out}:16",
            "bias": "*bf16:16" if bias else f"*{out}:16", "offsets": "*i32:16", "experts": "i32", "down": "i32",
            "rows": "i32", "stride_bias": "i32:16", "stride_ye": "i32:16", **ints, **scales,
        }  # fmt: skip
        constants = {
            "MODE": mode, "BIAS": bias, "B_BLOCK": 128 if by_block else 1, "ALIGN": 16,
            "LANES": lanes(128) if mode == EXPERTS else 0, "BLOCK_M": block_m, "BLOCK_N": block_n, "GROUP": 128,
            "stride_asm": 1,
        }  # fmt: skip
        for stride, of_blocks in (("stride_bsk", True), ("stride_bsn", False)):
            if by_block == of_blocks:
                constants[stride] = 1
            else:
                signature[stride] = "i32"
        made.append(Variant(_gemm_kernel, signature, constants, warps, 4, (90, 100), name))

    add("dense", DENSE, True, 4096, bias=True)
    add("dense_64_rows", DENSE, True, 64)
    add("dense_16_rows", DENSE, True, 16)
    add("gradient", DENSE, True, 4096, a="fp8e5")
    add("weight_gradient", DENSE, False, 4096, a="fp8e5", out="fp32")
    add("experts", EXPERTS, True, 4096)
    add("experts_16_rows", EXPERTS, True, 16)
    add("experts_weight_gradient", TOKENS, False, 4096, out="fp32")
    return tuple(made)


VARIANTS = _variants()
