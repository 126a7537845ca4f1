"""BitNet b1.58 for inference: 8-bit activations times ternary weights at 2 bits, summed in int32 (Ma et al., 2024).

The numbers are those of `ops.BitLinear`: activations on 127 levels of each token's largest, weights as -1, 0 and 1
times the mean size of their projection. Sums are of whole numbers and so are exact; both scales are applied at the end.
For compute capability 8.0, 9.0 and 10.0.

A weight is its value plus 1, in 2 bits. With P = 16 ⌈K / 64⌉ bytes in a row, byte j holds weights j, j + P, j + 2 P and
j + 3 P from its lowest bits on, so that one load of bytes is four tiles of weights, each for a contiguous tile of x.
Since x (w + 1) = x w + x, what is summed are products with the values plus 1, and each token's sum is taken off.

Traffic: x is read once and written as int8; a product reads N K / 4 bytes of weights ⌈M / 128⌉ times and int8 x
⌈N / 128⌉ times, mostly from the L2 cache, and writes y once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.variant import Variant
from hybridc.runtime.ops.bit_linear import SMALLEST, ternary_levels
from hybridc.runtime.parallel.across import ALONE, Across


def quantize_ternary(
    weight: Tensor, parts: tuple[int, ...] = (), across: Across = ALONE
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """weight [N, K] -> int8 [N, K] of -1, 0 and 1, and fp32 [N], the scale of each row.

    `parts` are the rows of projections fused in the weight, each with a scale of its own: its mean absolute value, and
    1e-5 at least. `across` are the ranks that have the weight between them.
    """
    values, scales = ternary_levels(weight, parts, across)
    rows = parts or (weight.shape[0],)
    return values, torch.cat([s.expand(n) for s, n in zip(scales, rows, strict=True)])


def pack(values: Tensor) -> Tensor:
    """int8 [N, K] of -1, 0 and 1 -> uint8 [N, 16 ⌈K / 64⌉]."""
    plane = _plane(values.shape[1])
    codes = torch.nn.functional.pad(values + 1, (0, 4 * plane - values.shape[1]), value=1).to(torch.uint8)
    first, second, third, fourth = codes.split(plane, 1)
    return first | second << 2 | third << 4 | fourth << 6


def unpack(packed: Tensor, width: int) -> Tensor:
    """uint8 [N, 16 ⌈K / 64⌉] -> int8 [N, K] of -1, 0 and 1, K = `width`."""
    planes = [(packed >> shift) & 3 for shift in (0, 2, 4, 6)]
    return torch.cat(planes, 1)[:, :width].to(torch.int8) - 1


def quantize_tokens(x: Tensor, largest: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x [..., K] -> int8 [..., K], fp32 scale [...] and int32 sum [...] of each token.

    The scale is the largest absolute value, 1e-5 at least, over 127. `largest` fp32 [...] are those of whole tokens
    where x has a part of each one's channels. Numbers are rounded to nearest, ties to even. A token with a NaN or an
    infinity has zeros and a scale of NaN.
    """
    k = x.shape[-1]
    flat = x.flatten(0, -2)
    data = torch.empty(flat.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(flat.shape[0], dtype=torch.float32, device=x.device)
    total = torch.empty(flat.shape[0], dtype=torch.int32, device=x.device)
    if flat.numel():
        block = min(triton.next_power_of_2(k), 4096)
        _quantize_kernel[(flat.shape[0],)](
            flat, scale if largest is None else largest.contiguous(), data, scale, total, k, *flat.stride(),
            GIVEN=largest is not None, SMALLEST=SMALLEST, BLOCK=block, num_warps=max(1, block // 512),
        )  # fmt: skip
    return data.view(x.shape), scale.view(x.shape[:-1]), total.view(x.shape[:-1])


def bit_linear(x: Tensor, packed: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., K], packed uint8 [N, 16 ⌈K / 64⌉], scale fp32 [N], bias [N] -> [..., N] in x's type.

    The weights take no gradient; that of x passes straight through its rounding, as in `ops.BitLinear`.
    """
    return _BitLinear.apply(x, packed, scale, bias)


def ternary_mm(
    data: Tensor,
    x_scale: Tensor,
    total: Tensor,
    packed: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    dtype: torch.dtype,
) -> Tensor:
    """int8 data [..., K] with fp32 scale [...] and int32 sum [...] of each token, packed uint8 [N, 16 ⌈K / 64⌉], scale
    fp32 [N], bias [N] -> [..., N] in a dtype. No gradients."""
    packed, scale = packed.contiguous(), scale.contiguous()
    (n, plane), k = packed.shape, data.shape[-1]
    if plane != _plane(k):
        raise ValueError(f"weights packed in {plane} bytes are not of {k} columns: those take {_plane(k)}")
    m = total.numel()
    y = torch.empty(m, n, dtype=dtype, device=data.device)
    block_m, block_n, block_k, warps = _blocks(m)
    if m and n:
        _forward_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
            data.contiguous(), x_scale.contiguous(), total.contiguous(), packed, scale, y if bias is None else bias, y,
            m, n, k, plane,
            BIAS=bias is not None, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=3,
        )  # fmt: skip
    return y.view(*data.shape[:-1], n)


def ternary_mm_dx(dy: Tensor, packed: Tensor, scale: Tensor, width: int) -> Tensor:
    """dy [..., N], packed uint8 [N, 16 ⌈K / 64⌉], scale fp32 [N] -> dy W [..., K] in dy's dtype, K = `width`."""
    n, plane = packed.shape
    flat = dy.reshape(-1, n)
    m = flat.shape[0]
    dx = torch.empty(m, width, dtype=dy.dtype, device=dy.device)
    if m and width:
        tiles = 4 * triton.cdiv(plane, 64)
        _backward_kernel[(triton.cdiv(m, 64) * tiles,)](
            flat, packed.contiguous(), scale.contiguous(), dx, m, n, width, plane, *flat.stride(),
            BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=3,
        )  # fmt: skip
    return dx.view(*dy.shape[:-1], width)


def bit_linear_reference(x: Tensor, packed: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """`bit_linear` in torch, without gradients: the sums in float64, which holds all of them."""
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True).clamp(min=SMALLEST)
    levels = (wide * 127.0 / largest).round()
    sums = (levels.double() @ unpack(packed, x.shape[-1]).double().t()).float()
    y = sums * (largest / 127.0) * scale
    return (y if bias is None else y + bias.float()).to(x.dtype)


class _BitLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, packed, scale, bias):
        ctx.save_for_backward(packed, scale)
        ctx.width, ctx.bias = x.shape[-1], None if bias is None else bias.dtype
        return ternary_mm(*quantize_tokens(x), packed, scale, bias, dtype=x.dtype)

    @staticmethod
    def backward(ctx, grad):
        dx = ternary_mm_dx(grad, *ctx.saved_tensors, ctx.width) if ctx.needs_input_grad[0] else None
        db = grad.flatten(0, -2).float().sum(0).to(ctx.bias) if ctx.needs_input_grad[3] else None
        return dx, None, None, db


def _plane(width: int) -> int:
    """The bytes of a row: a fourth of its weights, in whole loads of 16 bytes."""
    return 16 * triton.cdiv(width, 64)


def _blocks(rows: int) -> tuple[int, int, int, int]:
    """The tile of a product of so many rows, the bytes of a weight's row in a step, and warps. Few rows are for reading
    the weights in many programs."""
    if rows <= 16:
        return 16, 32, 128, 4
    return (64, 64, 64, 4) if rows <= 64 else (128, 128, 64, 8)


@triton.jit
def _quantize_kernel(
    x_ptr, given, data, scale, total, width, stride_m, stride_k,
    GIVEN: tl.constexpr, SMALLEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    largest = tl.zeros((BLOCK,), tl.float32)
    if GIVEN:
        whole = tl.load(given + row)
        largest += tl.where(whole < float("inf"), whole, float("inf"))
    else:
        for start in range(0, width, BLOCK):
            at = (start + k).to(tl.int64)
            x = tl.load(x_ptr + row * stride_m + at * stride_k, mask=start + k < width, other=0.0).to(tl.float32)
            largest = tl.maximum(largest, tl.where(tl.abs(x) < float("inf"), tl.abs(x), float("inf")))  # NaN too
    amax = tl.maximum(tl.max(largest), SMALLEST)
    usual = amax < float("inf")
    total_of_row = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, width, BLOCK):
        at = (start + k).to(tl.int64)
        x = tl.load(x_ptr + row * stride_m + at * stride_k, mask=start + k < width, other=0.0).to(tl.float32)
        levels = tl.div_rn(tl.where(usual, x, 0.0) * 127.0, tl.zeros((BLOCK,), tl.float32) + amax)
        rounded = ((levels + 12582912.0) - 12582912.0).to(tl.int32)  # 1.5 · 2²³: a step of 1, ties to even
        total_of_row += rounded
        tl.store(data + row * width + at, rounded.to(tl.int8), mask=start + k < width)
    tl.store(scale + row, tl.where(usual, amax, float("nan")) / 127.0)
    tl.store(total + row, tl.sum(total_of_row))


@triton.jit
def _forward_kernel(
    x_ptr, x_scale, total, packed, scale, bias, y, rows, columns, width, plane,
    BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of yᵀ = W xᵀ, where W, unpacked in registers, is the operand that need not be in shared memory."""
    BAND: tl.constexpr = 8
    across, down = tl.cdiv(columns, BLOCK_N), tl.cdiv(rows, BLOCK_M)
    above = tl.program_id(0) // (BAND * across) * BAND
    height = tl.minimum(down - above, BAND)
    inner = tl.program_id(0) % (BAND * across)
    m = (above + inner % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = inner // height * BLOCK_N + tl.arange(0, BLOCK_N)
    j = tl.arange(0, BLOCK_K)
    real_m, real_n = m < rows, n < columns
    w_at = packed + n.to(tl.int64)[:, None] * plane + j[None, :]
    x_at = x_ptr + m.to(tl.int64)[:, None] * width + j[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.int32)
    for start in range(0, plane, BLOCK_K):
        inside = start + j < plane
        codes = tl.load(w_at + start, mask=real_n[:, None] & inside[None, :], other=0)
        for quarter in tl.static_range(4):
            k = start + quarter * plane + j
            x = tl.load(
                x_at + (start + quarter * plane), mask=real_m[:, None] & (inside & (k < width))[None, :], other=0
            )
            acc += tl.dot(((codes >> 2 * quarter) & 3).to(tl.int8), tl.trans(x), out_dtype=tl.int32)
    acc -= tl.load(total + m, mask=real_m, other=0)[None, :]
    one = tl.load(scale + n, mask=real_n, other=0.0)[:, None] * tl.load(x_scale + m, mask=real_m, other=0.0)[None, :]
    out = acc.to(tl.float32) * one
    if BIAS:
        out += tl.load(bias + n, mask=real_n, other=0.0).to(tl.float32)[:, None]
    at = m.to(tl.int64)[:, None] * columns + n[None, :]
    tl.store(y + at, tl.trans(out).to(y.dtype.element_ty), mask=real_m[:, None] & real_n[None, :])


@triton.jit
def _backward_kernel(
    dy_ptr, packed, scale, dx, rows, columns, width, plane, stride_m, stride_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of dx, from one of the four places in a byte."""
    across = 4 * tl.cdiv(plane, BLOCK_K)
    m = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    part = tl.program_id(0) % across
    j = part // 4 * BLOCK_K + tl.arange(0, BLOCK_K)
    k = part % 4 * plane + j
    n = tl.arange(0, BLOCK_N)
    dy_at = dy_ptr + m.to(tl.int64)[:, None] * stride_m + n.to(tl.int64)[None, :] * stride_n
    w_at = packed + n.to(tl.int64)[:, None] * plane + j[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
    for start in range(0, columns, BLOCK_N):
        real = start + n < columns
        one = tl.load(scale + start + n, mask=real, other=0.0)
        dy = tl.load(dy_at, mask=(m < rows)[:, None] & real[None, :], other=0.0)
        codes = tl.load(w_at, mask=real[:, None] & (j < plane)[None, :], other=1)
        w = ((codes >> (2 * (part % 4)).to(tl.uint8)) & 3).to(tl.float32) - 1.0
        scaled = (dy.to(tl.float32) * one[None, :]).to(dy.dtype)
        acc += tl.dot(scaled, w.to(dy.dtype), input_precision="ieee")
        dy_at += BLOCK_N * stride_n
        w_at += BLOCK_N * plane
    at = m.to(tl.int64)[:, None] * width + k[None, :]
    tl.store(dx + at, acc.to(dx.dtype.element_ty), mask=(m < rows)[:, None] & ((j < plane) & (k < width))[None, :])


def _variants() -> tuple[Variant, ...]:
    sizes = {"rows": "i32", "columns": "i32:16", "width": "i32:16", "plane": "i32:16"}
    made = [
        Variant(_quantize_kernel,
                {"x_ptr": "*bf16:16", "given": "*fp32:16", "data": "*i8:16", "scale": "*fp32:16", "total": "*i32:16",
                 "width": "i32:16", "stride_m": "i32:16"},
                {"stride_k": 1, "GIVEN": False, "SMALLEST": SMALLEST, "BLOCK": 4096}, 8, name="quantize_tokens"),
        Variant(_backward_kernel,
                {"dy_ptr": "*bf16:16", "packed": "*u8:16", "scale": "*fp32:16", "dx": "*bf16:16", "stride_m": "i32:16",
                 **sizes},
                {"stride_n": 1, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, 4, 3, name="backward"),
    ]  # fmt: skip
    for rows in (1, 64, 4096):
        block_m, block_n, block_k, warps = _blocks(rows)
        made.append(
            Variant(
                _forward_kernel,
                {"x_ptr": "*i8:16", "x_scale": "*fp32:16", "total": "*i32:16", "packed": "*u8:16", "scale": "*fp32:16",
                 "bias": "*bf16:16", "y": "*bf16:16", **sizes},
                {"BIAS": False, "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k},
                warps, 3, name=f"forward_{rows}_rows",
            )
        )  # fmt: skip
    return tuple(made)


VARIANTS = _variants()
