"""The FP8 products of experts: tokens quantized before they are sorted, weights once for each time that they change.

Numbers are those of `ops.Experts` with an `FP8Product`: each expert's rows are quantized for themselves, so blocks of
tokens begin where an expert's rows do. A recipe whose activations have scales along channels quantizes a token before
the sort, once for all of its choices, and one byte a number is sorted.

Traffic of a first product, T tokens, k choices, C channels, bf16: x is read once and written as FP8, 3 T C bytes;
these bytes are sorted, T C + k T C, and multiplied. For the weight's gradient x is sorted and quantized along tokens in
the backward, 2 T C + 5 k T C, so that what a step keeps is x and not k times as much. A second product's input is read
once, and written both ways where the weight has a gradient; a gradient's rows are read once and written both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hybridc.runtime.kernels.experts_quantize import permute_quantized, quantize_by_expert
from hybridc.runtime.kernels.fp8_gemm import fp8_grouped_gemm, fp8_grouped_weight_gradient
from hybridc.runtime.kernels.fp8_linear import check_device
from hybridc.runtime.kernels.fp8_quantize import quantize_blocks, quantize_both_ways, quantize_groups
from hybridc.runtime.kernels.fp8_quantize_wide import Over, quantize_rows
from hybridc.runtime.kernels.grouped_gemm import sum_by_expert
from hybridc.runtime.kernels.moe import Sorted, gather, permute
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.parallel.across import ALONE, SPLIT_INPUT, Across
from hybridc.runtime.quant.linear import FP8Input, FP8Product
from hybridc.runtime.quant.recipes import Recipe
from hybridc.runtime.quant.scaling import WHOLE
from hybridc.runtime.versions import Held

RECIPES = ("tensor", "row", "block128", "mx")
"""Those that experts can have: a history would be one for all experts, in the order in which they run."""


@dataclass(frozen=True)
class ExpertsRecipe:
    """How operands of grouped products are quantized in a recipe, by ranks that have the weights between them."""

    recipe: Recipe
    across: Across = ALONE

    @property
    def group(self) -> int:
        """Contracted numbers that the GEMM scales at once."""
        return self.recipe.activation.columns or 128

    @property
    def whole(self) -> bool:
        """Whether all rows of an expert have one scale."""
        return self.recipe.activation.rows == WHOLE

    def weight(self, weight: Tensor, *, turned: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """weight [E, N, K] -> data and scale as `fp8_grouped_gemm` takes them, and `turned` those of [E, K, N]."""
        r, form = self.recipe, self.recipe.forward.dtype
        power = r.weight.power
        if r.weight.rows == WHOLE:
            over = self._over(self.across.cut)
            data, scale = quantize_rows(weight.flatten(1), form, pow2=power, over=over)
            data, scale = data.view(weight.shape), scale[:, :, None]
            other = data.view(torch.uint8).transpose(1, 2).contiguous().view(form) if turned else None
            return data, scale, other, scale if turned else None
        if r.turns:
            made = quantize_blocks(weight, form, pow2=power, transposed=turned)
            return made if turned else (*made, None, None)
        data, scale = self._lines(weight, form, power, self.across.columns)
        if not turned:
            return data, scale, None, None
        return data, scale, *self._lines(weight.transpose(1, 2), form, power, self.across.rows)

    def rows(self, x: Tensor, form: torch.dtype, *, split: bool) -> tuple[Tensor, Tensor]:
        """x [rows, C] along channels, of which ranks have parts where they are `split`; not for a scale of all rows."""
        return self._lines(x, form, self.recipe.activation.power, split)

    def both_ways(
        self, x: Tensor, form: torch.dtype, offsets: Tensor, align: int, *, split: bool, channels: bool = True
    ) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:
        """x [rows, C], sorted, along channels, and transposed along an expert's tokens; `channels` says whether the
        first is needed, `split` is as in `rows`."""
        power = self.recipe.activation.power
        if self.recipe.activation.columns != WHOLE:
            return quantize_both_ways(x, form, group=self.group, pow2=power, offsets=offsets, align=align)
        data, scale, data_t, scale_t = quantize_by_expert(
            x, offsets, form, whole=self.whole, pow2=power, align=align, over=self._over(split)
        )
        if not self.whole:
            data, scale = quantize_rows(x, form, pow2=power, over=self._over(split)) if channels else (None, None)
        return data, scale, data_t, scale_t

    def _lines(self, x: Tensor, form: torch.dtype, power: bool, split: bool) -> tuple[Tensor, Tensor]:
        if self.recipe.activation.columns == WHOLE:
            return quantize_rows(x, form, pow2=power, over=self._over(split))
        return quantize_groups(x, form, group=self.group, pow2=power)

    def _over(self, split: bool) -> Over:
        return self.across.most if split else None


@dataclass(frozen=True)
class Weights:
    """Quantized weights [E, N, K] for the forward's product, and [E, K, N] for that of the input's gradient."""

    forward: tuple[Tensor, Tensor]
    backward: tuple[Tensor, Tensor] | None


class HeldWeights:
    """The quantized form of a product's parameter, kept until it is written, replaced or moved."""

    def __init__(self, product: FP8Product) -> None:
        self.product = product
        self._held: Held[Weights] = Held()

    @property
    def recipe(self) -> ExpertsRecipe:
        """How it is quantized."""
        return ExpertsRecipe(self.product.recipe, self.product.across)

    @property
    def quantized(self) -> int:
        """How often the parameter was."""
        return self._held.made

    def __call__(self, weight: Tensor, *, turned: bool) -> Weights:
        """weight [E, N, K], `turned` as well where gradients of inputs will be wanted."""

        def make() -> Weights:
            data, scale, data_t, scale_t = self.recipe.weight(weight, turned=turned)
            return Weights((data, scale), (data_t, scale_t) if turned else None)

        return self._held((weight,), make, turned=turned, steady=self.product.across.cut)


class Call(NamedTuple):
    """Where rows are, `align`, a number that all offsets are multiples of, and whether there may be gradients."""

    to: Sorted
    align: int
    learns: bool


def fp8_experts_linear(
    x: Tensor | FP8Input | Stored,
    weight: Tensor,
    bias: Tensor | None,
    held: HeldWeights,
    call: Call,
    *,
    sort: bool,
    dtype: torch.dtype,
) -> Tensor:
    """x [..., K] of tokens that are to be sorted (`sort`), or [rows, K] sorted by expert, times each row's expert's
    weight [E, N, K], plus bias [E, N] -> [rows, N] in `dtype`.

    Raises UsageError on a device of a compute capability below 9.0, ValueError for a stored input of one rank's
    channels.
    """
    value = x if isinstance(x, Tensor) else x.carrier if isinstance(x, Stored) else x.x
    check_device(value.device, "experts")
    r = held.recipe
    if isinstance(x, Stored) and r.across.columns and r.recipe.activation.columns == WHOLE:
        raise ValueError(SPLIT_INPUT)
    stored = x if isinstance(x, Stored) else None
    made = held(weight, turned=call.learns)
    flat = value.reshape(-1, value.shape[-1])
    return _Product.apply(flat, weight, bias, made, r, call, sort, dtype, stored)


class _Product(torch.autograd.Function):
    """y = x Wᵀ, dx = dy W, dW = dyᵀ x for each expert. x stands for the value where that is stored quantized."""

    @staticmethod
    def forward(ctx, x, weight, bias, made, r, call, sort, dtype, stored):
        to, form = call.to, r.recipe.forward.dtype
        learns, kept = call.learns and ctx.needs_input_grad[1], ()
        if stored is None and (r.whole or (learns and not sort)):
            # one scale for an expert's rows is found when they are sorted
            rows = permute(x, to) if sort else x
            data, scale, *kept = r.both_ways(rows, form, to.offsets, call.align, split=r.across.columns)
        else:
            if stored is None:
                data, scale = r.rows(x, form, split=r.across.columns)
            else:
                data, scale = stored.data.view(x.shape), stored.scale.reshape(x.shape[0], -1)
            if sort:
                data, scale = permute_quantized(data, scale, to)
        # what the weight's gradient contracts is kept quantized, or made of the input when it is needed
        ctx.stored = stored if learns else None
        ctx.quantized = bool(kept)
        if learns:
            ctx.save_for_backward(*(kept or ((x,) if stored is None else ())))
        ctx.made, ctx.recipe, ctx.call, ctx.sort = made, r, call, sort
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        return fp8_grouped_gemm(data, scale, *made.forward, to.offsets, bias=bias, group=r.group, out_dtype=dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        r, (to, align, _), (x_type, weight_type, bias_type) = ctx.recipe, ctx.call, ctx.dtypes
        forward, backward = r.recipe.forward.dtype, r.recipe.backward.dtype
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        dx = dw = db = None
        split, whole = r.across.rows, r.across.gradient(dy)
        if wants_weight or r.whole:
            data, scale, *left = r.both_ways(whole, backward, to.offsets, align, split=split, channels=wants_x)
        elif wants_x:
            data, scale = r.rows(whole, backward, split=split)
        if wants_x:
            dx = fp8_grouped_gemm(data, scale, *ctx.made.backward, to.offsets, group=r.group, out_dtype=x_type)
            dx = gather(dx, None, to.places, x_type) if ctx.sort else dx
        if wants_weight:
            right = ctx.saved_tensors
            if not ctx.quantized:
                x = right[0] if ctx.stored is None else ctx.stored.again().reshape(-1, ctx.stored.shape[-1])
                rows = permute(x, to) if ctx.sort else x
                columns = r.across.columns
                right = r.both_ways(rows, forward, to.offsets, align, split=columns, channels=False)[2:]
            dw = fp8_grouped_weight_gradient(
                *left, *right, to.offsets, group=r.group, align=align, out_dtype=weight_type
            )  # fmt: skip
        db = sum_by_expert(dy, to.offsets).to(bias_type) if wants_bias else None
        return dx, dw, db, None, None, None, None, None, None
