"""Linear maps in FP8: all three products quantized, weights once for each time that they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hybridc.runtime.init import zeros
from hybridc.runtime.quant.recipes import Recipe, recipe
from hybridc.runtime.quant.scaling import Quantized, largest, quantize, scaled_mm


class FP8Input:
    """A tensor that several products of one recipe take: quantized once, when the first of them asks.

    It has the shape, dtype and device of the tensor, and no other use: ops that read a value in other ways too are
    given the tensor.
    """

    def __init__(self, x: Tensor, name: str, **options: Any) -> None:
        self.x, self.recipe = x, recipe(name, **options)
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device
        self._made: dict[bool, Quantized] = {}

    def made(self, *, turned: bool) -> Quantized:
        """[tokens, channels] with blocks along channels, or `turned`, [channels, tokens] with blocks along tokens."""
        if turned not in self._made:
            with torch.no_grad():
                flat = self.x.reshape(-1, self.x.shape[-1])
                made = quantize(flat.t() if turned else flat, self.recipe.forward, self.recipe.activation)
            self._made[turned] = made
        return self._made[turned]


@dataclass
class QuantizedWeight:
    """A weight [out, in] laid out for the forward's product, and [in, out] for that of the input's gradient."""

    forward: Quantized
    backward: Quantized


class FP8Product(nn.Module):
    """x Wᵀ in a recipe, for one weight or for one of each expert.

    Holds what a recipe remembers: quantized weights, by the version of the parameter, so that a step with several
    micro-batches quantizes them once; and for the delayed recipe `amax` [3, history], the largest numbers of former
    inputs, weights and gradients.
    """

    INIT: ClassVar[dict[str, zeros]] = {"amax": zeros()}
    amax: Tensor

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.recipe: Recipe = recipe(name, **options)
        self._kept: dict[int, tuple[object, QuantizedWeight]] = {}
        self.quantized = 0
        history = self.recipe.history
        self.register_buffer("amax", torch.zeros(3, history) if history else None)

    def forward(
        self, x: Tensor | FP8Input, weight: Tensor, bias: Tensor | None = None, *, index: int = 0
    ) -> Tensor:  # fmt: skip
        """x [..., in], weight [out, in], bias [out] -> [..., out] in x's dtype (autocast's, where that is on).

        `index` tells weights apart that go through one product, such as experts.
        """
        shared = x if isinstance(x, FP8Input) else None
        x = x.x if isinstance(x, FP8Input) else x
        dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
        with torch.autocast(x.device.type, enabled=False):
            held = self._weight(weight, index)
            y = _Products.apply(x.reshape(-1, x.shape[-1]), weight, held, self, shared)
            y = y if bias is None else y + bias.float()
            return y.view(*x.shape[:-1], weight.shape[0]).to(dtype)

    def extra_repr(self) -> str:
        """The recipe's name, for print(net)."""
        return self.recipe.name

    def scale_source(self, operand: int, x: Tensor) -> Tensor | None:
        """The delayed recipe's largest number of former steps for an operand (0 input, 1 weight, 2 gradient), the
        present one remembered; None for other recipes, and for a first step, whose own number counts."""
        if not self.recipe.history:
            return None
        before = self.amax[operand].max()
        with torch.no_grad():
            now = largest(x, self.recipe.activation).max()
            if self.training or not bool(before):
                self.amax[operand] = self.amax[operand].roll(1)
                self.amax[operand, 0] = now
        return (before if bool(before) else now).view(1, 1)

    def _weight(self, weight: Tensor, index: int) -> QuantizedWeight:
        """The quantized weight, kept until the parameter is written, replaced or moved."""
        state = (weight.data_ptr(), weight.dtype, weight.shape, None if weight.is_inference() else weight._version)
        kept = self._kept.get(index)
        if kept is not None and kept[0] == state:
            return kept[1]
        with torch.no_grad():
            amax = self.scale_source(1, weight)
            forward = quantize(weight, self.recipe.forward, self.recipe.weight, amax)
            backward = forward.transpose()
            if not self.recipe.turns:
                backward = quantize(weight.t(), self.recipe.forward, self.recipe.weight, amax)
        made = QuantizedWeight(forward, backward)
        self._kept[index] = (state, made)
        self.quantized += 1
        return made


class _Products(torch.autograd.Function):
    """y = x Wᵀ, dx = dy W, dW = dyᵀ x, each of two quantized matrices. What is kept of x is quantized too."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, held: QuantizedWeight, product: FP8Product, shared: FP8Input | None
    ) -> Tensor:
        r = product.recipe
        ctx.held, ctx.product, ctx.dtypes, ctx.x = held, product, (x.dtype, weight.dtype), None
        if shared is not None:
            ctx.x = shared.made(turned=True) if ctx.needs_input_grad[1] else None
            return scaled_mm(shared.made(turned=False), held.forward)
        amax = product.scale_source(0, x)
        if ctx.needs_input_grad[1]:
            ctx.x = quantize(x.t(), r.forward, r.activation, amax)
        return scaled_mm(quantize(x, r.forward, r.activation, amax), held.forward)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        r = ctx.product.recipe
        amax = ctx.product.scale_source(2, dy)
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = scaled_mm(quantize(dy, r.backward, r.activation, amax), ctx.held.backward).to(ctx.dtypes[0])
        if ctx.x is not None:
            dw = scaled_mm(quantize(dy.t(), r.backward, r.activation, amax), ctx.x).to(ctx.dtypes[1])
        return dx, dw, None, None, None


class FP8Linear(nn.Linear):
    """y = x Wᵀ + b with products in FP8: the weight stays as it is, a master that the optimizer changes.

    The recipe is `tensor`, `delayed`, `row`, `block128` or `mx`; options are `fwd` and `bwd`, element formats of the
    forward's operands and of gradients, and `scale`.
    """

    def __init__(self, ins: int, out: int, name: str, *, bias: bool = False, **options: Any) -> None:
        super().__init__(ins, out, bias=bias)
        self.product = FP8Product(name, **options)

    def forward(self, x: Tensor | FP8Input) -> Tensor:
        """x [..., in] -> [..., out]."""
        return self.product(x, self.weight, self.bias)
