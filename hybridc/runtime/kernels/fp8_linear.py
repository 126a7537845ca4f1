"""Linear maps in FP8 on GPUs: `hybridc.runtime.quant.linear` with Triton kernels for all that it computes.

Results are the emulation's but for the order of sums: quantized operands are the same to the last bit. Traffic of T
tokens, K inputs and N outputs in bf16, beside the three products' own (see `fp8_gemm`): x is read once and written in
both layouts, 2 T K + 2 T K bytes (2 T K + T K without a gradient of the weight), the output's gradient the same with N.
A whole tensor's scale takes one more reading, for its amax, which the delayed recipe saves; rows are read once along
channels and twice along tokens. A stored input is not read: its data go into the product as they are. Weights are
quantized once for each time that they change. What is kept of x for the backward is the layout of the weight's
gradient, 1 byte a number; of a stored input nothing is.

For compute capability 9.0 and 10.0: on 8.0 there are no FP8 tensor cores, and Triton has no E4M3; a device of 8.9 has
both, but not the shared memory that the products take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.device import capability
from hybridc.runtime.kernels.fp8_gemm import fp8_gemm
from hybridc.runtime.kernels.fp8_quantize import quantize_blocks, quantize_both_ways, quantize_groups
from hybridc.runtime.kernels.fp8_quantize_wide import Over, quantize_rows, quantize_tensor
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.ops.autocast import result_dtype
from hybridc.runtime.parallel.across import SPLIT_INPUT
from hybridc.runtime.quant import linear as emulation
from hybridc.runtime.quant.held import EncodedWeight, gradient_dtype
from hybridc.runtime.quant.recipes import Recipe
from hybridc.runtime.quant.scaling import WHOLE

LEAST = 90
"""The compute capability from which on the products run."""


def check_device(device: torch.device, what: str) -> None:
    """Raises UsageError for a device on which `what` do not run in FP8: one of a compute capability below 9.0."""
    if 0 < (found := capability(device)) < LEAST:
        raise UsageError(
            f"{what} in FP8 do not run on a device of compute capability {found / 10}",
            "leave FP8 out of the spec's `precision`, or take a device of 9.0 or more",
        )


class Operand(NamedTuple):
    """A matrix [T, C] in FP8: `data` and `scale` for products that contract channels, and with `turned` [C, T], or with
    T up to a multiple of 16, for those that contract tokens."""

    data: Tensor
    scale: Tensor
    turned: Tensor | None = None
    turned_scale: Tensor | None = None


def quantize_operand(
    x: Tensor,
    r: Recipe,
    format: torch.dtype,
    *,
    turned: bool,
    amax: Tensor | None = None,
    seen: Tensor | None = None,
    over: Over = None,
) -> Operand:
    """x [T, C], an activation or gradient, in a recipe. `amax` and `seen` fp32 [1] are as in `quantize_tensor`, and so
    is `over`, where x has a part of the channels."""
    power = r.activation.power
    if r.activation.columns != WHOLE:
        if turned:
            return Operand(*quantize_both_ways(x, format, group=r.activation.columns, pow2=power))
        return Operand(*quantize_groups(x, format, group=r.activation.columns, pow2=power))
    if r.activation.rows != WHOLE:
        along = quantize_rows(x, format, pow2=power, over=over)
        return Operand(*along, *quantize_rows(x.t(), format, pow2=power)) if turned else Operand(*along)
    made = quantize_tensor(x, format, pow2=power, amax=amax, seen=seen, transposed=turned, over=over)
    return Operand(*made, made[1]) if turned else Operand(*made)


class FP8Input(emulation.FP8Input):
    """A tensor that several products of one recipe take: quantized once, in the layouts that they ask for."""

    _operand: Operand | None = None

    def operand(self, *, turned: bool) -> Operand:
        """x as [tokens, channels], in both layouts where the first product needs them or a later one does."""
        if self._operand is None or (turned and self._operand.turned is None):
            with torch.no_grad():
                flat = self.x.reshape(-1, self.x.shape[-1])
                self._operand = quantize_operand(flat, self.recipe, self.recipe.forward.dtype, turned=turned)
        return self._operand


@dataclass
class HeldWeight:
    """A weight [N, K] in FP8 as the GEMMs read it: the layout of the input's gradient [K, N] is made when needed."""

    encoded: EncodedWeight

    @property
    def forward(self) -> tuple[Tensor, Tensor]:
        """Data and scale of y = x Wᵀ."""
        return self.encoded.data.detach(), self.encoded.scale

    @property
    def backward(self) -> tuple[Tensor, Tensor]:
        """Data and scale of dx = dy W."""
        data, scale, turned, turned_scale = self.encoded
        if turned is None or turned_scale is None:
            # blocks are square, so numbers stay
            turned, turned_scale = data.detach().view(torch.uint8).t().contiguous().view(data.dtype), scale.t()
            self.encoded = EncodedWeight(data, scale, turned, turned_scale)
        return turned, turned_scale


class FP8Product(emulation.FP8Product):
    """x Wᵀ in a recipe, for one weight. Remembers what the emulation does, under the same names."""

    def forward(
        self,
        x: Tensor | emulation.FP8Input | Stored,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        index: int = 0,
        encoded: EncodedWeight | None = None,
    ) -> Tensor:
        """x [..., in], weight [out, in], bias [out] -> [..., out] in x's dtype (autocast's, where that is on).

        A stored x is quantized along channels in this product's recipe already; its gradient goes to its carrier. The
        rest as in the emulation. Raises UsageError on a device of a compute capability below 9.0.
        """
        value = x.carrier if isinstance(x, Stored) else x.x if isinstance(x, emulation.FP8Input) else x
        check_device(value.device, "products")
        given = x if isinstance(x, FP8Input | Stored) else None
        if given is not None and self.across.columns and self.recipe.activation.columns == WHOLE:
            raise ValueError(SPLIT_INPUT)
        dtype = result_dtype(value)
        with torch.autocast(value.device.type, enabled=False):
            held = self.weight(weight, index, encoded)
            flat = value.reshape(-1, value.shape[-1])
            weight = weight if torch.is_grad_enabled() else weight.detach()  # nothing is made for a gradient then
            y = _Products.apply(flat, weight, bias, held, self, given, dtype)
            return y.view(*value.shape[:-1], weight.shape[0])

    def quantize(
        self, which: int, x: Tensor, format: torch.dtype, *, turned: bool, former: Tensor | None = None
    ) -> Operand:
        """An operand (0 input, 1 weight, 2 gradient), with former steps' amax where the recipe has a history: this one
        is remembered then, unless `former` is given, what there was when it came first.

        The host waits for no number: a first step's own amax is taken by the kernel, which finds no former one.
        """
        r, over = self.recipe, self.across.most if any(self.split(which)) else None
        if not r.history:
            return quantize_operand(x, r, format, turned=turned, over=over)
        if former is not None:
            return quantize_operand(x, r, format, turned=turned, amax=former, over=over)
        history = self.amax[which]
        before, seen = history.max().view(1), torch.zeros(1, device=x.device)
        made = quantize_operand(x, r, format, turned=turned, amax=before, seen=seen, over=over)
        seen = seen if over is None else over(seen)
        later = torch.cat((seen, history[:-1]))
        self.amax[which] = later if self.training else torch.where(before > 0, history, later)
        return made

    def encode(self, weight: Tensor, *, turned: bool) -> EncodedWeight:
        """A weight [out, in] in FP8; with `turned` in both layouts, for which square blocks are read once."""
        r, form = self.recipe, self.recipe.forward.dtype
        if r.weight.rows == WHOLE:
            data, scale, *other = self.quantize(1, weight, form, turned=turned)
            scale = scale.view(1, 1)
            return EncodedWeight(data, scale, other[0], scale if turned else None)
        if r.turns:
            return EncodedWeight(*quantize_blocks(weight, form, pow2=r.weight.power, transposed=turned))
        rows, columns = (self.across.most if cut else None for cut in self.split(1))
        along = quantize_operand(weight, r, form, turned=False, over=columns)[:2]
        across = quantize_operand(weight.t(), r, form, turned=False, over=rows)[:2] if turned else (None, None)
        return EncodedWeight(*along, *across)

    def decode(self, encoded: EncodedWeight) -> HeldWeight:
        """A weight in FP8 as the kernels take it."""
        return HeldWeight(encoded)


class FP8Linear(emulation.FP8Linear):
    """y = x Wᵀ + b with products in FP8, the emulation's parameters and options. x may be stored quantized."""

    Product = FP8Product

    def forward(self, x: Tensor | emulation.FP8Input | Stored) -> Tensor:
        """x [..., in] -> [..., out]."""
        return self.product(x, self.weight, self.bias, encoded=self.encoded())


class _Products(torch.autograd.Function):
    """y = x Wᵀ + b, dx = dy W, dW = dyᵀ x, each product of two quantized matrices. x stands for a stored value."""

    @staticmethod
    def forward(ctx, x, weight, bias, held, product, given, dtype):
        r, learns = product.recipe, ctx.needs_input_grad[1]
        if isinstance(given, Stored):
            made = Operand(given.data.view(x.shape), given.scale.reshape(x.shape[0], given.scale.shape[-1]))
        elif given is not None:
            made = given.operand(turned=learns)
        else:
            made = product.quantize(0, x, r.forward.dtype, turned=learns)
        ctx.held, ctx.product, ctx.stored = held, product, given if isinstance(given, Stored) and learns else None
        ctx.former = None
        ctx.dtypes = x.dtype, gradient_dtype(weight), None if bias is None else bias.dtype
        if learns and ctx.stored is None:
            ctx.save_for_backward(made.turned, made.turned_scale)
        return _gemm(made[:2], held.forward, r, dtype, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        product, r, (x_type, weight_type, bias_type) = ctx.product, ctx.product.recipe, ctx.dtypes
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        dx = dw = db = None
        if wants_x or wants_weight or r.history:
            dy_whole, former = product.across.gradient(dy), ctx.former
            # remembered once, though some schedules come twice, for the gradients of inputs and of weights
            ctx.former = product.amax[2].max().view(1) if r.history and former is None else former
            made = product.quantize(2, dy_whole, r.backward.dtype, turned=wants_weight, former=former)
        if wants_x:
            dx = _gemm(made[:2], ctx.held.backward, r, x_type)
        if wants_weight:
            if ctx.stored is None:
                right = ctx.saved_tensors
            else:
                x = ctx.stored.again().reshape(-1, ctx.stored.shape[-1])
                right = quantize_operand(x, r, r.forward.dtype, turned=True)[2:]
            dw = _gemm(made[2:], right, r, weight_type)
        if wants_bias:
            db = dy.sum(0, dtype=torch.float32).to(bias_type)
        return dx, dw, db, None, None, None, None


def _gemm(a, b, r, dtype, bias=None):
    """a bᵀ of data and scale each, as `fp8_gemm` has them."""
    return fp8_gemm(*a, *b, bias=bias, group=r.activation.columns or 128, out_dtype=dtype)
