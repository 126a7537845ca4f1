"""Products of rows that are sorted by expert with their expert's matrix, and the gradients, in bf16, fp16 and fp32.

The host knows no count and waits for none. torch's own `grouped_mm` is as good where it has CUTLASS kernels: for bf16
on compute capability 9.0 and 10.0, with all rows on 16 bytes; elsewhere (fp16, fp32, 8.0, other widths) it reads the
offsets on the host or refuses. So products are torch's where these kernels are, and Triton's elsewhere, which leave
nothing undefined: rows behind the last offset are zeros. torch leaves them as the memory was, NaN perhaps, in results
and gradients alike, so whoever takes these rows must not mix them with others; nothing in `experts` does.

Traffic, with tiles of 128 x 128: rows are read ⌈N / 128⌉ times and an expert's matrix once for each 128 of its rows,
mostly from the L2 cache; the result is written once. For compute capability 8.0, 9.0 and 10.0.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from hybridc.runtime.kernels.expert_tiles import expert_of, lanes, tiles
from hybridc.runtime.kernels.variant import Variant


def grouped_linear(x: Tensor, weight: Tensor, offsets: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [rows, K], sorted by expert, times each row's expert's weight [E, N, K], plus bias [E, N] -> [rows, N].

    offsets int32 [E + 1], on the device: expert e has the rows from offsets[e] to offsets[e + 1], and offsets[0] is 0.
    Sums are fp32; the result has x's type. Differentiable in x, weight and bias.
    """
    return _GroupedLinear.apply(x, weight, offsets, bias)


def grouped_linear_reference(x: Tensor, weight: Tensor, offsets: Tensor, bias: Tensor | None = None) -> Tensor:
    """`grouped_linear` in torch, an expert at a time, with zeros behind the last offset."""
    ends = offsets.tolist()
    made = [
        F.linear(x[begin:end], weight[e], None if bias is None else bias[e])
        for e, (begin, end) in enumerate(pairwise(ends))
    ]
    return torch.cat([*made, x.new_zeros(x.shape[0] - ends[-1], weight.shape[1])])


def sum_by_expert(rows: Tensor, offsets: Tensor) -> Tensor:
    """rows [rows, N], sorted by expert -> fp32 [E, N], the sum of each expert's: the gradient of a bias."""
    experts, n = offsets.shape[0] - 1, rows.shape[1]
    total = torch.empty((experts, n), dtype=torch.float32, device=rows.device)
    if total.numel():
        block = min(64, triton.next_power_of_2(n))
        _sum_kernel[(experts, triton.cdiv(n, block))](
            rows, offsets, total, n, *rows.stride(), BLOCK_T=64, BLOCK_N=block, num_warps=8
        )
    return total


def has_torchs(rows: Tensor, weight: Tensor) -> bool:
    """Whether torch's grouped products of rows [rows, K] and weight [E, N, K] do not wait for the host, and take them
    as they lie in memory."""
    if rows.dtype != torch.bfloat16 or weight.dtype != torch.bfloat16 or rows.device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(rows.device)[0] in (9, 10) and fits_torchs(rows, weight)


def fits_torchs(rows: Tensor, weight: Tensor) -> bool:
    """Whether there is something to multiply, and each row of the weight, and of the products, is on 16 bytes."""
    lines = 16 // weight.element_size()
    return (
        rows.shape[0] > 0
        and weight.is_contiguous()
        and all(size and size % lines == 0 for size in weight.shape[1:])
        and weight.data_ptr() % 16 == rows.data_ptr() % 16 == 0
    )


class _GroupedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, offsets, bias):
        x = x.contiguous()
        ctx.save_for_backward(x, weight, offsets)
        ctx.bias = None if bias is None else bias.dtype
        if bias is None and has_torchs(x, weight):
            return F.grouped_mm(x, weight.transpose(1, 2), offs=offsets[1:])
        return _rows(x, weight, offsets, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, offsets = ctx.saved_tensors
        dy = dy.contiguous()
        fast = has_torchs(dy, weight)
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            turned = weight.transpose(1, 2)
            dx = F.grouped_mm(dy, weight, offs=offsets[1:]) if fast else _rows(dy, turned, offsets, None)
        if ctx.needs_input_grad[1]:
            dw = F.grouped_mm(dy.t(), x, offs=offsets[1:]) if fast else _weights(dy, x, offsets, weight.dtype)
        if ctx.needs_input_grad[3]:
            db = sum_by_expert(dy, offsets).to(ctx.bias)
        return dx, dw, None, db


def _rows(a: Tensor, b: Tensor, offsets: Tensor, bias: Tensor | None) -> Tensor:
    """a [rows, K] times b [E, N, K], strided as it likes."""
    (m, k), (experts, n, _) = a.shape, b.shape
    y = torch.empty((m, n), dtype=a.dtype, device=a.device)
    block_m, block_n, block_k, warps = _blocks(m // max(1, experts), a.dtype)
    if y.numel():
        _rows_kernel[(tiles(m, experts, block_m) * triton.cdiv(n, block_n),)](
            a, b, y if bias is None else bias.contiguous(), y, offsets, experts, tiles(m, experts, block_m), m, n, k,
            a.stride(0), *b.stride(), BIAS=bias is not None, LANES=lanes(experts), PRECISION=_precision(a.dtype),
            BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=3,
        )  # fmt: skip
    return y


def _weights(dy: Tensor, x: Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ over an expert's rows of dyᵀ x: dy [rows, N], x [rows, K] -> [E, N, K]."""
    experts, n, k = offsets.shape[0] - 1, dy.shape[1], x.shape[1]
    dw = torch.empty((experts, n, k), dtype=dtype, device=x.device)
    block_n, _, block_t, warps = _blocks(4096, x.dtype)
    if dw.numel():
        _weights_kernel[(experts * triton.cdiv(n, block_n) * triton.cdiv(k, block_n),)](
            dy, x, dw, offsets, n, k, dy.stride(0), x.stride(0), PRECISION=_precision(x.dtype),
            BLOCK_N=block_n, BLOCK_K=block_n, BLOCK_T=block_t, num_warps=warps, num_stages=3,
        )  # fmt: skip
    return dw


def _blocks(rows: int, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """Rows and columns of a tile, what it contracts in a step, and its warps. Few rows are for reading the weights in
    many programs."""
    if rows <= 16:
        return 16, 64, 64, 4
    if dtype == torch.float32 or rows <= 64:
        return 64, 64, 32, 4
    return 128, 128, 64, 8


def _precision(dtype: torch.dtype) -> str:
    """fp32 as torch multiplies it by default, without TF32."""
    return "ieee" if dtype == torch.float32 else "tf32"


@triton.jit
def _rows_kernel(
    a, b, bias, y, offsets, experts, down, rows, columns, depth,
    stride_am, stride_be, stride_bn, stride_bk,
    BIAS: tl.constexpr, LANES: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of y: rows of one expert, or of none, which are zeros."""
    BAND: tl.constexpr = 8
    across = tl.cdiv(columns, BLOCK_N)
    place = tl.program_id(0)
    above = place // (BAND * across) * BAND
    height = tl.minimum(down - above, BAND)
    tile, column = above + place % (BAND * across) % height, place % (BAND * across) // height
    expert, first, end = expert_of(tile, offsets, experts, rows, BLOCK_M, LANES)
    if first >= end:
        return
    depth = tl.where(expert < experts, depth, 0)
    e = expert.to(tl.int64)
    m = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
    n = (column * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    k = tl.arange(0, BLOCK_K).to(tl.int64)
    real_m, real_n = m < end, n < columns
    a_at = a + m[:, None] * stride_am + k[None, :]
    b_at = b + e * stride_be + n[None, :] * stride_bn + k[:, None] * stride_bk
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, depth, BLOCK_K):
        inside = start + k < depth
        av = tl.load(a_at, mask=real_m[:, None] & inside[None, :], other=0.0)
        bv = tl.load(b_at, mask=inside[:, None] & real_n[None, :], other=0.0)
        acc = tl.dot(av, bv, acc, input_precision=PRECISION)
        a_at += BLOCK_K
        b_at += BLOCK_K * stride_bk
    if BIAS:
        real = n < tl.where(expert < experts, columns, 0)
        acc += tl.load(bias + e * columns + n, mask=real, other=0.0).to(tl.float32)[None, :]
    at = y + m[:, None] * columns + n[None, :]
    tl.store(at, acc.to(y.dtype.element_ty), mask=real_m[:, None] & real_n[None, :])


@triton.jit
def _weights_kernel(
    dy, x, dw, offsets, rows, columns, stride_y, stride_x,
    PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """One tile of one expert's dw."""
    down, across = tl.cdiv(rows, BLOCK_N), tl.cdiv(columns, BLOCK_K)
    place = tl.program_id(0)
    expert = place // (down * across)
    n = (place // across % down * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    k = (place % across * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
    t = tl.arange(0, BLOCK_T).to(tl.int64)
    begin, end = tl.load(offsets + expert), tl.load(offsets + expert + 1)
    acc = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in range(begin, end, BLOCK_T):
        at = start + t
        real = at < end
        left = tl.load(dy + at[None, :] * stride_y + n[:, None], mask=(n < rows)[:, None] & real[None, :], other=0.0)
        right = tl.load(x + at[:, None] * stride_x + k[None, :], mask=real[:, None] & (k < columns)[None, :], other=0.0)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    at = dw + (expert.to(tl.int64) * rows + n[:, None]) * columns + k[None, :]
    tl.store(at, acc.to(dw.dtype.element_ty), mask=(n < rows)[:, None] & (k < columns)[None, :])


@triton.jit
def _sum_kernel(
    rows, offsets, total, columns, stride_t, stride_n, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Some columns of one expert."""
    expert = tl.program_id(0)
    n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    t = tl.arange(0, BLOCK_T).to(tl.int64)
    end = tl.load(offsets + expert + 1)
    acc = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    for start in range(tl.load(offsets + expert), end, BLOCK_T):
        at = start + t
        mask = (at < end)[:, None] & (n < columns)[None, :]
        acc += tl.load(rows + at[:, None] * stride_t + n[None, :] * stride_n, mask=mask, other=0.0).to(tl.float32)
    tl.store(total + expert.to(tl.int64) * columns + n, tl.sum(acc, 0), mask=n < columns)


def _variants() -> tuple[Variant, ...]:
    made = []
    for kind, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        for rows in (4096, 64, 16) if kind == "bf16" else (4096, 16):
            block_m, block_n, block_k, warps = _blocks(rows, dtype)
            for turned in (False, True) if rows == 4096 else (False,):
                step, other = ("stride_bk", "stride_bn") if turned else ("stride_bn", "stride_bk")
                bias = not turned and rows == 4096
                signature = {
                    "a": f"*{kind}:16", "b": f"*{kind}:16", "bias": f"*{kind}:16", "y": f"*{kind}:16",
                    "offsets": "*i32:16", "experts": "i32", "down": "i32", "rows": "i32", "columns": "i32:16",
                    "depth": "i32:16", "stride_am": "i32:16", "stride_be": "i32:16", step: "i32:16",
                }  # fmt: skip
                constants = {
                    "BIAS": bias, "LANES": lanes(128), "PRECISION": _precision(dtype), "BLOCK_M": block_m,
                    "BLOCK_N": block_n, "BLOCK_K": block_k, other: 1,
                }  # fmt: skip
                name = f"{'gradient' if turned else 'rows'}_{rows}:{kind}"
                made.append(Variant(_rows_kernel, signature, constants, warps, 3, name=name))
        block_n, _, block_t, warps = _blocks(4096, dtype)
        made.append(
            Variant(
                _weights_kernel,
                {"dy": f"*{kind}:16", "x": f"*{kind}:16", "dw": f"*{kind}:16", "offsets": "*i32:16", "rows": "i32:16",
                 "columns": "i32:16", "stride_y": "i32:16", "stride_x": "i32:16"},
                {"PRECISION": _precision(dtype), "BLOCK_N": block_n, "BLOCK_K": block_n, "BLOCK_T": block_t},
                warps, 3, name=f"weights:{kind}",
            )
        )  # fmt: skip
    made.append(
        Variant(
            _sum_kernel,
            {"rows": "*bf16:16", "offsets": "*i32:16", "total": "*fp32:16", "columns": "i32:16", "stride_t": "i32:16"},
            {"stride_n": 1, "BLOCK_T": 64, "BLOCK_N": 64}, 8, 3, name="sum",
        )
    )  # fmt: skip
    return tuple(made)


VARIANTS = _variants()
