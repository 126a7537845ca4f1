"""BitNet b1.58: ternary weights and 8-bit activations, made anew in each forward to train, packed to run (Ma et al.,
2024)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from hybridc.runtime.ops.autocast import result_dtype
from hybridc.runtime.ops.ternary_rows import quarter, unpack_rows
from hybridc.runtime.parallel.across import ALONE, SPLIT_INPUT, Across, Scaled

SMALLEST = 1e-5
"""Means and maxima below this count as this, so that zeros have a scale."""


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, made):
        return made

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def straight_through(value: Tensor, made: Tensor) -> Tensor:
    """`made` in the forward; the gradient is that of the value which it was made of."""
    return _StraightThrough.apply(value, made)


def _inverse(means: Tensor) -> Tensor:
    """fp32, 1 over mean magnitudes."""
    return 1.0 / means.float().clamp(min=SMALLEST)


def _levels(weight: Tensor, many: Tensor) -> Tensor:
    """fp32 -1, 0 and 1, the nearest to weights times `many`."""
    return (weight.float() * many).round_().clamp_(-1, 1)


@torch.no_grad()
def inverse_scales(weight: Tensor, parts: tuple[int, ...] = (), across: Across = ALONE) -> Tensor:
    """fp32 [parts], what the weights of each fused projection are multiplied with to be rounded: 1 over their mean
    absolute value, 1e-5 at least.

    The weight is [out, in], or what of it a rank has: means are those of the whole, which `across` knows. They are
    summed in fp64, so that neither the order nor the split of a sum shows in fp32.
    """
    rows, mine = parts or (weight.shape[0],), across.counted(weight)
    masks = [None] * len(rows) if mine is None else mine.split(rows)
    sums = [_sums(w, m) for w, m in zip(weight.split(rows), masks, strict=True)]
    return _inverse(_means(torch.stack(sums), across))


def _sums(weight: Tensor, mine: Tensor | None) -> Tensor:
    """fp64 [..., 2], the sum of magnitudes over weights [..., out, in] and how many they are, of those that are
    `mine` to count."""
    sizes = weight.abs() if mine is None else weight.abs() * mine
    total = sizes.sum((-2, -1), dtype=torch.float64)
    count = total.new_tensor(weight.shape[-2:].numel()) if mine is None else mine.sum(dtype=total.dtype)
    return torch.stack((total, count.expand_as(total)), -1)


def _means(sums: Tensor, across: Across) -> Tensor:
    """fp64 [...], means of what `_sums` gives, over all ranks."""
    total, count = across.sums(sums).unbind(-1)
    return total / count.clamp(min=1)


@torch.no_grad()
def ternary_levels(
    weight: Tensor, parts: tuple[int, ...] = (), across: Across = ALONE
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """weight [out, in] -> int8 [out, in] of -1, 0 and 1, and fp32 [parts], the scales that go with them."""
    many = inverse_scales(weight, parts, across)
    shards = weight.split(parts or weight.shape[0])
    levels = [_levels(w, m).to(torch.int8) for w, m in zip(shards, many, strict=True)]
    return torch.cat(levels) if len(levels) > 1 else levels[0], 1.0 / many


def ternary(weight: Tensor, parts: tuple[int, ...] = (), across: Across = ALONE) -> Tensor:
    """Each weight as -s, 0 or s, the nearest, where s is the mean absolute weight; the gradient passes unchanged.

    `parts` are the rows of projections fused in the weight, each with an s of its own; `across` are the ranks that have
    the weight between them.
    """
    many = inverse_scales(weight, parts, across)
    shards = weight.detach().split(parts or weight.shape[0])
    levels = [(_levels(w, m) / m).to(w.dtype) for w, m in zip(shards, many, strict=True)]
    return straight_through(weight, torch.cat(levels) if len(levels) > 1 else levels[0])


def ternary_experts(weight: Tensor, across: Across = ALONE) -> Tensor:
    """`ternary` of each expert's weight, all at once: [E, out, in] -> [E, out, in]."""
    with torch.no_grad():
        many = _inverse(_means(_sums(weight, across.counted(weight)), across))[:, None, None]
        made = (_levels(weight, many) / many).to(weight.dtype)
    return straight_through(weight, made)


@torch.no_grad()
def token_levels(x: Tensor, across: Across = ALONE) -> tuple[Tensor, Tensor]:
    """x [..., in] -> fp32 [..., in] of whole numbers from -128 to 127, and fp32 [..., 1], the scale of each token: its
    largest magnitude, 1e-5 at least, over 127. Where `across` says that ranks have columns of the weight, they have
    these channels of x, and scales are of all channels."""
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True)
    largest = (across.most(largest) if across.columns else largest).clamp(min=SMALLEST)
    return (wide * 127.0 / largest).round().clamp(-128, 127), largest / 127.0


def eight_bits(x: Tensor, across: Across = ALONE) -> Tensor:
    """Each token's channels on 256 levels between -128/127 and 1 times its largest; the gradient passes unchanged.
    `across` as in `token_levels`."""
    levels, scale = token_levels(x, across)
    return straight_through(x, (levels * scale).to(x.dtype))


class BitInput:
    """A tensor that several BitLinears take: brought to 8 bits once. It has the tensor's shape, dtype and device."""

    def __init__(self, x: Tensor) -> None:
        self.value = x
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device

    @cached_property
    def x(self) -> Tensor:
        """The value in 8 bits, as `eight_bits` makes it."""
        return eight_bits(self.value)

    @cached_property
    def levels(self) -> tuple[Tensor, Tensor]:
        """The whole numbers and scales, as `token_levels` makes them."""
        return token_levels(self.value)


class BitProduct(nn.Module):
    """x Wᵀ + b in BitNet's formats, with weights that are not its own, such as experts'; `across` are the ranks that
    have them between them."""

    across: Across = ALONE

    def forward(self, x: Tensor | BitInput, weight: Tensor, bias: Tensor | None = None, *, index: int = 0) -> Tensor:
        """x [..., in], weight [out, in] -> [..., out]."""
        return F.linear(_in_eight_bits(x, self.across), ternary(weight, (), self.across), bias)


def whole_input(x: object, across: Across) -> None:
    """Raises ValueError for an input that has been quantized by the largest number of one rank's channels of it."""
    if across.columns and not isinstance(x, Tensor):
        raise ValueError(SPLIT_INPUT)


def _in_eight_bits(x: Tensor | BitInput, across: Across) -> Tensor:
    """What a product reads of its input."""
    whole_input(x, across)
    return x.x if isinstance(x, BitInput) else eight_bits(x, across)


class BitLinear(Scaled, nn.Linear):
    """y = eight_bits(x) ternary(W)ᵀ + b. `parts` are the rows of projections fused in W, each with its own scale."""

    def __init__(self, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> None:
        super().__init__(ins, out, bias=bias)
        self.parts = parts

    def forward(self, x: Tensor | BitInput) -> Tensor:
        """x [..., in] -> [..., out]."""
        return F.linear(_in_eight_bits(x, self.across), ternary(self.weight, self.parts, self.across), self.bias)


class PackedWeight(Scaled, nn.Module):
    """The parameters of a projection whose weights are ternary and stay so, for inference.

    weight: uint8 [Σ ⌈part / 4⌉, in], laid out by `ternary_rows.pack_rows`; weight_scale: fp32 [parts], what the -1, 0
    and 1 of each fused projection are times. Neither has a gradient.
    """

    bias: nn.Parameter | None

    def __init__(self, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.in_features, self.out_features = ins, out
        self.parts = parts or (out,)
        shape = (sum(map(quarter, self.parts)), ins)
        self.weight = nn.Parameter(torch.full(shape, 0b01010101, dtype=torch.uint8), requires_grad=False)
        self.weight_scale = nn.Parameter(torch.ones(len(self.parts), dtype=torch.float32), requires_grad=False)
        self.register_parameter("bias", nn.Parameter(torch.zeros(out)) if bias else None)

    def row_scales(self) -> Tensor:
        """fp32 [out], the scale of each row."""
        return torch.cat([s.expand(rows) for s, rows in zip(self.weight_scale.float(), self.parts, strict=True)])

    def extra_repr(self) -> str:
        """For print(net)."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class PackedBitLinear(PackedWeight):
    """`BitLinear` with the ternary weights at 2 bits: sums of whole numbers, exact, and both scales at their end.

    The gradient of x passes its rounding unchanged.
    """

    def forward(self, x: Tensor | BitInput) -> Tensor:
        """x [..., in] -> [..., out] in x's dtype (autocast's, where that is on)."""
        whole_input(x, self.across)
        levels, scale = x.levels if isinstance(x, BitInput) else token_levels(x, self.across)
        value = x.value if isinstance(x, BitInput) else x
        dtype = result_dtype(value)
        with torch.autocast(x.device.type, enabled=False):
            y = _PackedProduct.apply(value, levels, scale, self.weight, self.row_scales(), self.parts)
            return (y if self.bias is None else y + self.bias.float()).to(dtype)


class _PackedProduct(torch.autograd.Function):
    """fp32 (levels Wᵀ) · scale · row scales, with the gradient of the value that the levels were made of."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, levels: Tensor, scale: Tensor, packed: Tensor, rows: Tensor, parts: tuple[int, ...]
    ) -> Tensor:
        ctx.save_for_backward(packed, rows)
        ctx.parts, ctx.dtype = parts, value.dtype
        # whole numbers up to 2²⁴ are exact in fp32, in whatever order they are summed
        exact = torch.float32 if 128 * levels.shape[-1] <= 1 << 24 else torch.float64
        return (levels.to(exact) @ unpack_rows(packed, parts, exact).t()).float() * scale * rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        packed, rows = ctx.saved_tensors
        dx = (dy * rows) @ unpack_rows(packed, ctx.parts, torch.float32)
        return dx.to(ctx.dtype), None, None, None, None, None
