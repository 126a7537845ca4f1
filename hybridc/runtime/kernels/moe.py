"""Tokens to rows sorted by the experts that they chose, and back: what `ops.Experts` does around its experts' products.

Nothing is known to the host but an upper bound of the rows, so no step waits for the device. Choices are sorted by
counting: how often each expert is chosen in each block of choices, sums of that over blocks, and the rank of a choice
within its block. The order, with that of an expert's tokens, is the same in every run.

Traffic: `permute` reads x once and writes each row once; `unpermute` reads each row once and writes y once; its
backward reads dy and the rows once and writes the rows' gradient once. For compute capability 8.0, 9.0 and 10.0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.variant import Variant
from hybridc.runtime.ops.moe import ROWS

CHOICES = 128
"""Choices of a block."""


class Sorted(NamedTuple):
    """Where choices go: `places` int32 [T, k], the row of each; `offsets` int32 [experts + 1], where each expert's rows
    begin, and the last end; `counts` int32 [experts], how many of them are tokens'; `rows`, how many rows there may be,
    which is T k where nothing is filled up."""

    places: Tensor
    offsets: Tensor
    counts: Tensor
    rows: int


def sort_by_expert(ids: Tensor, experts: int, align: int | None = None) -> Sorted:
    """ids [T, k] -> where the choices go, in the order of experts, and of tokens within an expert.

    Each expert's rows come in multiples of `align`: by default of `ops.moe.ROWS`, or 1 for a single token, as
    `ops.Experts` has them. A choice that is none of the `experts` goes nowhere: its place is -1.
    """
    tokens, k = ids.shape
    many = tokens * k
    if align is None:
        align = 1 if tokens == 1 else ROWS
    blocks = triton.cdiv(many, CHOICES)
    flat, device = ids.contiguous(), ids.device
    before = torch.empty((experts, blocks), dtype=torch.int32, device=device)
    counts = torch.zeros(experts, dtype=torch.int32, device=device)
    offsets = torch.zeros(experts + 1, dtype=torch.int32, device=device)
    places = torch.empty((tokens, k), dtype=torch.int32, device=device)
    if many:
        lanes = triton.next_power_of_2(experts)
        _count_kernel[(blocks,)](flat, before, counts, many, blocks, experts, CHOICES=CHOICES, LANES=lanes)
        _begin_kernel[(experts,)](before, counts, offsets, blocks, experts, align, LANES=lanes, BLOCK=1024)
        _place_kernel[(blocks,)](flat, before, places, many, blocks, experts, CHOICES=CHOICES, num_warps=8)
    return Sorted(places, offsets, counts, many + min(experts, many) * (align - 1))


def permute(x: Tensor, to: Sorted) -> Tensor:
    """x [T, D] -> [rows, D]: each token at its choices' places, and zeros in rows without a token."""
    return _Permute.apply(x, to.places, to.offsets, to.counts, to.rows)


def unpermute(rows: Tensor, weights: Tensor, to: Sorted) -> Tensor:
    """rows [rows, D] and weights [T, k] -> Σ over a token's choices of weight · row, [T, D].

    It is summed in fp32 in the order of the choices, and has the type that a product of rows and weights has. Rows
    without a token are not read, and their gradient is zero.
    """
    return _Unpermute.apply(rows, weights, to.places, to.offsets, to.counts)


def sort_by_expert_reference(ids: Tensor, experts: int, align: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places, offsets and counts as from `sort_by_expert`, in torch, for ids that are all experts."""
    chosen = ids.flatten()
    counts = torch.bincount(chosen, minlength=experts)
    offsets = torch.nn.functional.pad(((counts + align - 1) // align * align).cumsum(0), (1, 0))
    order = chosen.argsort(stable=True)
    rank = torch.arange(len(chosen), device=ids.device) - (counts.cumsum(0) - counts)[chosen[order]]
    places = torch.empty_like(chosen).index_put((order,), offsets[chosen[order]] + rank)
    return places.view(ids.shape), offsets, counts


class _Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, places, offsets, counts, rows):
        ctx.save_for_backward(places)
        (tokens, width), experts = x.shape, counts.shape[0]
        out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
        block = block_of(width)
        _permute_kernel[(tokens + experts, triton.cdiv(width, block))](
            x, places, offsets, counts, out, tokens, experts, rows, width, *x.stride(), K=places.shape[1], BLOCK=block
        )
        return out

    @staticmethod
    def backward(ctx, grad):
        return gather(grad, None, ctx.saved_tensors[0], grad.dtype), None, None, None, None


class _Unpermute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weights, places, offsets, counts):
        ctx.save_for_backward(rows, weights, places, offsets, counts)
        return gather(rows, weights, places, torch.promote_types(rows.dtype, weights.dtype))

    @staticmethod
    def backward(ctx, grad):
        rows, weights, places, offsets, counts = ctx.saved_tensors
        (tokens, k), width, experts = places.shape, rows.shape[1], counts.shape[0]
        d_rows, d_weights = torch.empty_like(rows, memory_format=torch.contiguous_format), torch.empty_like(weights)
        _unpermute_backward_kernel[(tokens + experts,)](
            grad, rows, weights, places, offsets, counts, d_rows, d_weights, tokens, experts, rows.shape[0], width,
            *grad.stride(), *rows.stride(), *weights.stride(), *d_weights.stride(), K=k, BLOCK=block_of(width),
        )  # fmt: skip
        return d_rows, d_weights, None, None, None


def gather(rows: Tensor, weights: Tensor | None, places: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ over a token's choices of weight · row, or of the row."""
    (tokens, k), width = places.shape, rows.shape[1]
    out = torch.empty(tokens, width, dtype=dtype, device=rows.device)
    block = block_of(width)
    if tokens:
        _unpermute_kernel[(tokens, triton.cdiv(width, block))](
            rows, rows if weights is None else weights, places, out, width, *rows.stride(),
            *((0, 0) if weights is None else weights.stride()), WEIGHTED=weights is not None, K=k, BLOCK=block,
        )  # fmt: skip
    return out


def block_of(width: int) -> int:
    """Channels that a program takes at once."""
    return min(triton.next_power_of_2(width), 2048)


@triton.jit
def _chosen(ids, many, experts, CHOICES: tl.constexpr):
    """This program's choices, and where they are; what is no expert is -1."""
    at = tl.program_id(0) * CHOICES + tl.arange(0, CHOICES)
    chosen = tl.load(ids + at, mask=at < many, other=-1).to(tl.int32)
    return tl.where((chosen >= 0) & (chosen < experts), chosen, -1), at


@triton.jit
def _count_kernel(ids, before, counts, many, blocks, experts, CHOICES: tl.constexpr, LANES: tl.constexpr):
    """How often each expert is chosen in one block, and in all."""
    chosen, _ = _chosen(ids, many, experts, CHOICES)
    found = tl.histogram(tl.maximum(chosen, 0), LANES, mask=chosen >= 0)
    lane = tl.arange(0, LANES)
    tl.store(before + lane.to(tl.int64) * blocks + tl.program_id(0), found, mask=lane < experts)
    tl.atomic_add(counts + lane, found, mask=(lane < experts) & (found > 0), sem="relaxed")


@triton.jit
def _begin_kernel(before, counts, offsets, blocks, experts, align, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Where one expert begins, and with it the first row of each block's choices of it, in place of their counts."""
    expert = tl.program_id(0)
    lane = tl.arange(0, LANES)
    sizes = (tl.load(counts + lane, mask=lane < experts, other=0) + align - 1) // align * align
    begin = tl.sum(tl.where(lane < expert, sizes, 0))
    tl.store(offsets + expert, begin)
    if expert == experts - 1:
        tl.store(offsets + experts, tl.sum(tl.where(lane < experts, sizes, 0)))
    block = tl.arange(0, BLOCK)
    for start in range(0, blocks, BLOCK):
        at = before + expert.to(tl.int64) * blocks + start + block
        found = tl.load(at, mask=start + block < blocks, other=0)
        tl.store(at, begin + tl.cumsum(found, 0) - found, mask=start + block < blocks)
        begin += tl.sum(found)


@triton.jit
def _place_kernel(ids, before, places, many, blocks, experts, CHOICES: tl.constexpr):
    """The row of each of a block's choices: what comes before the block, and before it in the block."""
    chosen, at = _chosen(ids, many, experts, CHOICES)
    # the same numbers along the other axis
    others = tl.program_id(0) * CHOICES + tl.arange(0, CHOICES)
    other = tl.load(ids + others, mask=others < many, other=-1).to(tl.int32)
    earlier = (chosen[:, None] == other[None, :]) & (others[None, :] < at[:, None])
    rank = tl.sum(earlier.to(tl.int32), 1)
    first = tl.load(before + chosen.to(tl.int64) * blocks + tl.program_id(0), mask=chosen >= 0, other=0)
    tl.store(places + at, tl.where(chosen >= 0, first + rank, -1), mask=at < many)


@triton.jit
def fill(out, offsets, counts, expert, experts, rows, width, d, BLOCK: tl.constexpr):
    """Zeros for the rows of an expert that no token has, and for its share of those behind the last expert's."""
    zeros = tl.zeros((BLOCK,), tl.float32).to(out.dtype.element_ty)
    first = tl.load(offsets + expert) + tl.load(counts + expert)
    at = out + first.to(tl.int64) * width + d
    for _ in range(first, tl.load(offsets + expert + 1)):
        tl.store(at, zeros, mask=d < width)
        at += width
    first = tl.load(offsets + experts) + expert
    at = out + first.to(tl.int64) * width + d
    step = tl.full((), 1, tl.int64) * experts * width
    for _ in range(first, rows, experts):
        tl.store(at, zeros, mask=d < width)
        at += step


@triton.jit
def _permute_kernel(
    x, places, offsets, counts, out, tokens, experts, rows, width, stride_t, stride_d,
    K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some channels of one token, or of an expert's rows without one."""
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    t = tl.program_id(0).to(tl.int64)
    if t < tokens:
        value = tl.load(x + t * stride_t + d.to(tl.int64) * stride_d, mask=d < width, other=0.0)
        for j in tl.static_range(K):
            place = tl.load(places + t * K + j).to(tl.int64)
            tl.store(out + place * width + d, value, mask=d < tl.where(place >= 0, width, 0))
    else:
        fill(out, offsets, counts, tl.program_id(0) - tokens, experts, rows, width, d, BLOCK)


@triton.jit
def _unpermute_kernel(
    rows, weights, places, out, width, stride_r, stride_d, stride_wt, stride_wk,
    WEIGHTED: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some channels of one token."""
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    t = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(K):
        place = tl.load(places + t * K + j).to(tl.int64)
        here = d < tl.where(place >= 0, width, 0)
        row = tl.load(rows + place * stride_r + d.to(tl.int64) * stride_d, mask=here, other=0.0).to(tl.float32)
        acc += row * tl.load(weights + t * stride_wt + j * stride_wk).to(tl.float32) if WEIGHTED else row
    tl.store(out + t * width + d, acc.to(out.dtype.element_ty), mask=d < width)


@triton.jit
def _unpermute_backward_kernel(
    dy, rows, weights, places, offsets, counts, d_rows, d_weights, tokens, experts, all_rows, width,
    stride_gt, stride_gd, stride_r, stride_d, stride_wt, stride_wk, stride_vt, stride_vk,
    K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token, or an expert's rows without one."""
    t = tl.program_id(0).to(tl.int64)
    if t < tokens:
        for j in tl.static_range(K):
            place = tl.load(places + t * K + j).to(tl.int64)
            limit = tl.where(place >= 0, width, 0)
            weight = tl.load(weights + t * stride_wt + j * stride_wk).to(tl.float32)
            acc = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, width, BLOCK):
                d = start + tl.arange(0, BLOCK)
                wide = d.to(tl.int64)
                grad = tl.load(dy + t * stride_gt + wide * stride_gd, mask=d < limit, other=0.0).to(tl.float32)
                row = tl.load(rows + place * stride_r + wide * stride_d, mask=d < limit, other=0.0).to(tl.float32)
                acc += grad * row
                tl.store(d_rows + place * width + d, (grad * weight).to(d_rows.dtype.element_ty), mask=d < limit)
            total = tl.sum(acc).to(d_weights.dtype.element_ty)
            tl.store(d_weights + t * stride_vt + j * stride_vk, total)
    else:
        for start in range(0, width, BLOCK):
            d = start + tl.arange(0, BLOCK)
            fill(d_rows, offsets, counts, tl.program_id(0) - tokens, experts, all_rows, width, d, BLOCK)


def _variants() -> tuple[Variant, ...]:
    where = {"places": "*i32:16", "offsets": "*i32:16", "counts": "*i32:16"}
    sizes = {"tokens": "i32", "experts": "i32", "width": "i32:16"}
    sorting = {"ids": "*i64:16", "before": "*i32:16", "many": "i32", "blocks": "i32", "experts": "i32"}
    weights = {"weights": "*bf16:16", "stride_wt": "i32"}
    plain = {"K": 8, "BLOCK": 2048}
    return (
        Variant(_count_kernel, sorting | {"counts": "*i32:16"}, {"CHOICES": CHOICES, "LANES": 256}, 4, 3, name="count"),
        Variant(_begin_kernel,
                {name: sorting.get(name, "*i32:16") for name in ("before", "counts", "offsets", "blocks", "experts")}
                | {"align": "i32:16"}, {"LANES": 256, "BLOCK": 1024}, 4, 3, name="begin"),
        Variant(_place_kernel, sorting | {"places": "*i32:16"}, {"CHOICES": CHOICES}, 8, 3, name="place"),
        Variant(_permute_kernel,
                {"x": "*bf16:16", "out": "*bf16:16", "rows": "i32", "stride_t": "i32:16", **where, **sizes},
                plain | {"stride_d": 1}, 4, 3, name="permute"),
        Variant(_unpermute_kernel,
                {"rows": "*bf16:16", "out": "*bf16:16", "places": "*i32:16", "width": "i32:16", "stride_r": "i32:16",
                 **weights}, plain | {"stride_d": 1, "stride_wk": 1, "WEIGHTED": True}, 4, 3, name="unpermute"),
        Variant(_unpermute_kernel,
                {"rows": "*bf16:16", "weights": "*bf16:16", "out": "*bf16:16", "places": "*i32:16", "width": "i32:16",
                 "stride_r": "i32:16", "stride_wt": "i32", "stride_wk": "i32"},
                plain | {"stride_d": 1, "WEIGHTED": False}, 4, 3, name="permute_backward"),
        Variant(_unpermute_backward_kernel,
                {"dy": "*bf16:16", "rows": "*bf16:16", "d_rows": "*bf16:16", "d_weights": "*bf16:16", "all_rows": "i32",
                 "stride_gt": "i32:16", "stride_r": "i32:16", "stride_vt": "i32", **where, **sizes, **weights},
                plain | {"stride_gd": 1, "stride_d": 1, "stride_wk": 1, "stride_vk": 1}, 4, 3,
                name="unpermute_backward"),
    )  # fmt: skip


VARIANTS = _variants()
