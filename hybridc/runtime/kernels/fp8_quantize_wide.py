"""Tensors as FP8 with one scale for each row, or for the whole tensor (the row, tensor and delayed recipes).

Scales, saturation, infinities and NaN are as in `fp8_quantize`, with a row or the tensor as the group. Rows that fit
into a block's registers are read once. Longer rows, columns of a transposed view, and tensors are read twice, once for
the amax; a tensor whose amax is given is read once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.fp8_quantize import BLOCK, LARGEST, cast, rounds, scale_of, sizes
from hybridc.runtime.kernels.variant import Variant

LONGEST = 16384
"""Numbers of a row that are kept in registers."""

Over: TypeAlias = Callable[[Tensor], Tensor] | None
"""What makes the amax of a whole row or tensor of that of the part which is here."""


def quantize_rows(
    x: Tensor, format: torch.dtype = torch.float8_e4m3fn, *, pow2: bool = False, over: Over = None
) -> tuple[Tensor, Tensor]:
    """x [..., C] -> data [..., C] and scale fp32 [..., 1]. x may be a transposed view: its columns are rows then."""
    flat = x.flatten(0, -2)
    r, c = flat.shape
    data = torch.empty((r, c), dtype=format, device=x.device)
    if c > LONGEST or flat.stride(1) != 1 or over is not None:
        amax = _amax(flat, r)
        amax = amax if over is None else over(amax)
        scale = torch.ones(r, dtype=torch.float32, device=x.device)
        _apply(flat, amax, data, scale, None, pow2, False)
    else:
        scale = torch.ones(r, dtype=torch.float32, device=x.device)
        if r and c:
            many = triton.next_power_of_2(c)
            _row_kernel[(r,)](
                flat, data, scale, c, *flat.stride(),
                LARGEST=LARGEST[format], POW2=pow2, LANES=many, ROUND=rounds(), num_warps=_warps(many),
            )  # fmt: skip
    return data.view(x.shape), scale.view(*x.shape[:-1], 1)


def quantize_tensor(
    x: Tensor,
    format: torch.dtype = torch.float8_e4m3fn,
    *,
    pow2: bool = False,
    amax: Tensor | None = None,
    seen: Tensor | None = None,
    transposed: bool = False,
    over: Over = None,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """x [..., C] -> data [..., C] and scale fp32 [1], and with `transposed` data_t [C, ...] for x of two dimensions.

    The amax is x's own, or `amax` fp32 [1], as delayed scaling takes it from earlier steps; numbers beyond it saturate.
    Where it is 0, as in a first step, x's own counts, and the host need not know. x's own is also put into `seen` fp32
    [1] where it is larger than what is there; where x is a part of a tensor, this is the part's own.
    """
    flat = x.flatten(0, -2)
    data = torch.empty(flat.shape, dtype=format, device=x.device)
    data_t = torch.empty(flat.shape[::-1], dtype=format, device=x.device) if transposed else None
    if amax is None:
        amax, own = _amax(flat, 1), seen
        if own is not None:
            torch.maximum(own, amax, out=own)
        seen = None
    else:
        amax = torch.maximum(amax, _amax(flat, 1, unless=amax))
    amax = amax if over is None else over(amax)
    scale = torch.ones(1, dtype=torch.float32, device=x.device)
    _apply(flat, amax, data, scale, data_t, pow2, True, seen)
    return (data.view(x.shape), scale, data_t) if transposed else (data.view(x.shape), scale)


def _amax(x: Tensor, count: int, unless: Tensor | None = None) -> Tensor:
    """The amax of each row of x, or with a `count` of 1 that of x. Zeros, and x is not read, where `unless` [1] is not
    0."""
    amax = torch.zeros(count, dtype=torch.float32, device=x.device)
    r, c = x.shape
    if r and c:
        grid = (triton.cdiv(r, BLOCK) * triton.cdiv(c, BLOCK),)
        _amax_kernel[grid](
            x, amax, amax if unless is None else unless, r, c, *x.stride(),
            WHOLE=count == 1, UNLESS=unless is not None, BLOCK=BLOCK, num_warps=16,
        )  # fmt: skip
    return amax


def _apply(x, amax, data, scale, data_t, pow2, whole, seen=None):
    r, c = x.shape
    if r and c:
        grid = (triton.cdiv(r, BLOCK) * triton.cdiv(c, BLOCK),)
        _apply_kernel[grid](
            x, amax, data, data if data_t is None else data_t, scale, scale if seen is None else seen,
            r, c, *x.stride(), LARGEST=LARGEST[data.dtype], POW2=pow2, WHOLE=whole, TRANSPOSED=data_t is not None,
            SEEN=seen is not None, BLOCK=BLOCK, ROUND=rounds(), num_warps=16,
        )  # fmt: skip


def _warps(lanes: int) -> int:
    return max(1, min(16, lanes // 512))


@triton.jit
def _row_kernel(
    x_ptr, data, scale, channels, stride_r, stride_c,
    LARGEST: tl.constexpr, POW2: tl.constexpr, LANES: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, LANES)
    x = tl.load(x_ptr + row * stride_r + c * stride_c, mask=c < channels, other=0.0).to(tl.float32)
    many, found = scale_of(tl.max(sizes(x)), LARGEST, POW2)
    tl.store(data + row * channels + c, cast(x * many, data.dtype.element_ty, LARGEST, ROUND), mask=c < channels)
    tl.store(scale + row, found)


@triton.jit
def _tile(x_ptr, rows, columns, stride_r, stride_c, BLOCK: tl.constexpr):
    """This program's tile of x, fp32, its rows and columns, and which of it is inside."""
    across = tl.cdiv(columns, BLOCK)
    r = (tl.program_id(0) // across * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = (tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = (r < rows)[:, None] & (c < columns)[None, :]
    x = tl.load(x_ptr + r[:, None] * stride_r + c[None, :] * stride_c, mask=inside, other=0.0)
    return x.to(tl.float32), r, c, inside


@triton.jit
def _raise_to(place, amax, mask):
    """place = max(place, amax): numbers that are not negative are in the order of their bits."""
    tl.atomic_max(place.to(tl.pointer_type(tl.int32)), amax.to(tl.int32, bitcast=True), mask=mask, sem="relaxed")


@triton.jit
def _amax_kernel(
    x_ptr, amax, unless, rows, columns, stride_r, stride_c,
    WHOLE: tl.constexpr, UNLESS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One tile."""
    if UNLESS:  # noqa: SIM102 - the compiler decides this one
        if tl.load(unless) > 0:
            return
    x, r, _, _ = _tile(x_ptr, rows, columns, stride_r, stride_c, BLOCK)
    if WHOLE:
        _raise_to(amax, tl.max(sizes(x)), None)
    else:
        _raise_to(amax + r, tl.max(sizes(x), 1), r < rows)


@triton.jit
def _apply_kernel(
    x_ptr, amax_ptr, data, data_t, scale, seen, rows, columns, stride_r, stride_c,
    LARGEST: tl.constexpr, POW2: tl.constexpr, WHOLE: tl.constexpr, TRANSPOSED: tl.constexpr, SEEN: tl.constexpr,
    BLOCK: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """One tile."""
    x, r, c, inside = _tile(x_ptr, rows, columns, stride_r, stride_c, BLOCK)
    if WHOLE:
        many, found = scale_of(tl.load(amax_ptr), LARGEST, POW2)
        if tl.program_id(0) == 0:
            tl.store(scale, found)
        if SEEN:
            _raise_to(seen, tl.max(sizes(x)), None)
        x *= many
    else:
        many, found = scale_of(tl.load(amax_ptr + r, mask=r < rows, other=0.0), LARGEST, POW2)
        if tl.program_id(0) % tl.cdiv(columns, BLOCK) == 0:
            tl.store(scale + r, found, mask=r < rows)
        x *= many[:, None]
    made = cast(x, data.dtype.element_ty, LARGEST, ROUND)
    tl.store(data + r[:, None] * columns + c[None, :], made, mask=inside)
    if TRANSPOSED:
        tl.store(data_t + c[:, None] * rows + r[None, :], tl.trans(made), mask=tl.trans(inside))


def _variants() -> tuple[Variant, ...]:
    tile = {"x_ptr": "*bf16:16", "rows": "i32:16", "columns": "i32:16"}
    amax = tile | {"amax": "*fp32:16", "unless": "*fp32:16"}
    made = [
        Variant(_amax_kernel, amax | {"stride_r": "i32:16"},
                {"stride_c": 1, "WHOLE": True, "UNLESS": False, "BLOCK": BLOCK}, 16, 2, (90, 100), "amax"),
        Variant(_amax_kernel, amax | {"stride_r": "i32:16"},
                {"stride_c": 1, "WHOLE": True, "UNLESS": True, "BLOCK": BLOCK}, 16, 2, (90, 100), "amax_first"),
        Variant(_amax_kernel, amax | {"stride_c": "i32:16"},
                {"stride_r": 1, "WHOLE": False, "UNLESS": False, "BLOCK": BLOCK}, 16, 2, (90, 100), "amax_of_columns"),
    ]  # fmt: skip
    for kind, largest in (("fp8e4nv", 448.0), ("fp8e5", 57344.0)):
        plain = {"LARGEST": largest, "POW2": False, "ROUND": False}
        out = {"data": f"*{kind}:16", "scale": "*fp32:16"}
        made += [
            Variant(
                _row_kernel, out | {"x_ptr": "*bf16:16", "channels": "i32:16", "stride_r": "i32:16"},
                plain | {"stride_c": 1, "LANES": c}, _warps(c), 2, (90, 100), f"row_{c}:{kind}",
            )
            for c in ((4096, 16384) if kind == "fp8e4nv" else (4096,))
        ]  # fmt: skip
        for name, step, whole in (("tensor", "stride_r", True), ("columns", "stride_c", False)):
            other = "stride_c" if step == "stride_r" else "stride_r"
            made.append(
                Variant(
                    _apply_kernel,
                    out | tile | {"amax_ptr": "*fp32:16", "data_t": f"*{kind}:16", "seen": "*fp32:16", step: "i32:16"},
                    plain | {other: 1, "WHOLE": whole, "TRANSPOSED": whole, "SEEN": whole, "BLOCK": BLOCK},
                    16, 2, (90, 100), f"{name}:{kind}",
                )
            )  # fmt: skip
    return tuple(made)


VARIANTS = _variants()
