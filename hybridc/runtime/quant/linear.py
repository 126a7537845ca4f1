"""Linear maps in FP8: all three products quantized, weights once for each time that they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hybridc.runtime.errors import UsageError
from hybridc.runtime.init import zeros
from hybridc.runtime.ops.autocast import result_dtype
from hybridc.runtime.parallel.across import ALONE, SPLIT_INPUT, Across, Scaled
from hybridc.runtime.quant.held import EncodedWeight, gradient_dtype, restored
from hybridc.runtime.quant.recipes import Recipe, recipe
from hybridc.runtime.quant.scaling import WHOLE, Quantized, largest, quantize, scaled_mm
from hybridc.runtime.versions import Held


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
    inputs, weights and gradients. `across` are the ranks that have the weight between them: largest numbers are those
    of all of it, and of all that it is multiplied with.
    """

    INIT: ClassVar[dict[str, zeros]] = {"amax": zeros()}
    amax: Tensor
    across: Across = ALONE

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.recipe: Recipe = recipe(name, **options)
        self._held: Held[Any] = Held()
        self.quantized = 0
        history = self.recipe.history
        self.register_buffer("amax", torch.zeros(3, history) if history else None)

    def forward(
        self,
        x: Tensor | FP8Input,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        index: int = 0,
        encoded: EncodedWeight | None = None,
    ) -> Tensor:
        """x [..., in], weight [out, in], bias [out] -> [..., out] in x's dtype (autocast's, where that is on).

        `index` tells weights apart that go through one product, such as experts. `encoded` says that the weight is
        stored in FP8, and with what scales; `weight` is its data then, and has a gradient in fp32. Raises ValueError
        for an input quantized by one rank's channels of it.
        """
        shared = x if isinstance(x, FP8Input) else None
        if shared is not None and self.across.columns and self.recipe.activation.columns == WHOLE:
            raise ValueError(SPLIT_INPUT)
        x = x.x if isinstance(x, FP8Input) else x
        dtype = result_dtype(x)
        with torch.autocast(x.device.type, enabled=False):
            held = self.weight(weight, index, encoded)
            weight = weight if torch.is_grad_enabled() else weight.detach()  # nothing is made for a gradient then
            y = _Products.apply(x.reshape(-1, x.shape[-1]), weight, held, self, shared)
            y = y if bias is None else y + bias.float()
            return y.view(*x.shape[:-1], weight.shape[0]).to(dtype)

    def extra_repr(self) -> str:
        """The recipe's name, for print(net)."""
        return self.recipe.name

    def split(self, operand: int) -> tuple[bool, bool]:
        """Whether ranks have parts of the rows and of the columns of an operand (0 input, 1 weight, 2 gradient)."""
        a = self.across
        return ((False, a.columns), (a.rows, a.columns), (False, a.rows))[operand]

    def operand(self, operand: int, x: Tensor, amax: Tensor | None, *, turned: bool = False) -> Quantized:
        """A matrix as a product takes it, or `turned`, transposed before it is quantized. `amax` is what `scale_source`
        gave for it."""
        r, parts = self.recipe, self.split(operand)
        element, scaling = r.backward if operand == 2 else r.forward, r.weight if operand == 1 else r.activation
        x, parts = (x.t(), parts[::-1]) if turned else (x, parts)
        over = any(cut and side == WHOLE for cut, side in zip(parts, (scaling.rows, scaling.columns), strict=True))
        return quantize(x, element, scaling, self.across.most(largest(x, scaling)) if over and amax is None else amax)

    def scale_source(self, operand: int, x: Tensor) -> Tensor | None:
        """The delayed recipe's largest number of former steps for an operand (0 input, 1 weight, 2 gradient), the
        present one remembered; None for other recipes, and for a first step, whose own number counts."""
        if not self.recipe.history:
            return None
        before = self.amax[operand].max()
        with torch.no_grad():
            now = largest(x, self.recipe.activation).max()
            now = self.across.most(now) if any(self.split(operand)) else now
            if self.training or not bool(before):
                self.amax[operand] = self.amax[operand].roll(1)
                self.amax[operand, 0] = now
        return (before if bool(before) else now).view(1, 1)

    def encode(self, weight: Tensor, *, turned: bool) -> EncodedWeight:
        """A weight [out, in] in FP8; `turned` says whether the layout of the input's gradient is wanted as well."""
        amax = self.scale_source(1, weight)
        other = self.operand(1, weight, amax, turned=True) if turned and not self.recipe.turns else None
        return EncodedWeight.of(self.operand(1, weight, amax), other)

    def decode(self, encoded: EncodedWeight) -> Any:
        """A weight in FP8 as the products of this class take it."""
        forward = restored(encoded.data, encoded.scale, self.recipe.weight)
        if encoded.turned is None or encoded.turned_scale is None:
            return QuantizedWeight(forward, forward.transpose())
        return QuantizedWeight(forward, restored(encoded.turned, encoded.turned_scale, self.recipe.weight))

    def weight(self, weight: Tensor, index: int, encoded: EncodedWeight | None) -> Any:
        """The quantized weight, kept until the parameter is written, replaced or moved.

        In training, or where gradients are recorded, with the layout of the input's gradient.
        """
        turned = torch.is_grad_enabled() or self.training

        def make() -> Any:
            if encoded is not None:
                return self.decode(encoded)
            self.quantized += 1
            return self.decode(self.encode(weight, turned=turned))

        tensors = (weight,) if encoded is None else encoded.tensors()
        both = turned or self.recipe.turns or encoded is not None
        steady = self.across.cut or bool(self.recipe.history)
        return self._held(tensors, make, index=index, turned=both, steady=steady)


class _Products(torch.autograd.Function):
    """y = x Wᵀ, dx = dy W, dW = dyᵀ x, each of two quantized matrices. What is kept of x is quantized too."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, held: QuantizedWeight, product: FP8Product, shared: FP8Input | None
    ) -> Tensor:
        ctx.held, ctx.product, ctx.dtypes, ctx.x = held, product, (x.dtype, gradient_dtype(weight)), None
        ctx.amax = None
        if shared is not None:
            ctx.x = shared.made(turned=True) if ctx.needs_input_grad[1] else None
            return scaled_mm(shared.made(turned=False), held.forward)
        amax = product.scale_source(0, x)
        if ctx.needs_input_grad[1]:
            ctx.x = product.operand(0, x, amax, turned=True)
        return scaled_mm(product.operand(0, x, amax), held.forward)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        dy = ctx.product.across.gradient(dy)
        # a schedule that takes the gradients of inputs and weights apart comes twice, for one gradient to be remembered
        amax = ctx.amax = ctx.product.scale_source(2, dy) if ctx.amax is None else ctx.amax
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = scaled_mm(ctx.product.operand(2, dy, amax), ctx.held.backward).to(ctx.dtypes[0])
        if ctx.x is not None:
            dw = scaled_mm(ctx.product.operand(2, dy, amax, turned=True), ctx.x).to(ctx.dtypes[1])
        return dx, dw, None, None, None


class FP8Linear(Scaled, nn.Linear):
    """y = x Wᵀ + b with products in FP8: the weight stays as it is, a master that the optimizer changes.

    The recipe is `tensor`, `delayed`, `row`, `block128` or `mx`; options are `fwd` and `bwd`, element formats of the
    forward's operands and of gradients, and `scale`. `PrimaryWeights` stores the weight in FP8 instead: `weight` is
    then its data, and `weight_scale` has its scales. A recipe whose blocks are not square has `weight_turned` [in, out]
    and `weight_turned_scale` as well, the same weight quantized along the other dimension.
    """

    Product: ClassVar[type[FP8Product]] = FP8Product
    weight_scale: Tensor | None
    weight_turned: Tensor | None
    weight_turned_scale: Tensor | None

    def __init__(self, ins: int, out: int, name: str, *, bias: bool = False, **options: Any) -> None:
        super().__init__(ins, out, bias=bias)
        self.product = self.Product(name, **options)
        for buffer in SCALES:
            self.register_buffer(buffer, None)

    def forward(self, x: Tensor | FP8Input) -> Tensor:
        """x [..., in] -> [..., out]."""
        return self.product(x, self.weight, self.bias, encoded=self.encoded())

    def placed(self, name: str, across: Across) -> None:
        """As of any module with products of few bits."""
        if name == "weight":
            self.product.across = across

    def encoded(self) -> EncodedWeight | None:
        """The weight where it is stored in FP8. Raises UsageError where a cast to another dtype has spoiled it."""
        if self.weight_scale is None:
            return None
        if self.weight.dtype != self.product.recipe.forward.dtype or self.weight_scale.dtype != torch.float32:
            raise UsageError(
                f"a weight that was stored in FP8 was cast to {self.weight.dtype}",
                "move the net with .to(device), and cast it before its weights are stored in FP8",
            )
        if self.weight.requires_grad and self.weight.grad_dtype != torch.float32:
            self.weight.grad_dtype = torch.float32  # a copied parameter has forgotten it
        return EncodedWeight(self.weight, self.weight_scale, self.weight_turned, self.weight_turned_scale)

    def store(self, encoded: EncodedWeight) -> None:
        """Writes the weight in FP8 in place; it must be stored so already."""
        with torch.no_grad():
            for name, new in zip(("weight", *SCALES), encoded, strict=True):
                if new is not None:
                    getattr(self, name).copy_(new)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """FP8 weights are read into wider ones and the other way round, as long as blocks are the same."""
        given, r = state_dict.get(prefix + "weight"), self.product.recipe
        names, errors = [prefix + name for name in ("weight", *SCALES)], rest[-1]
        if given is not None and given.shape == self.weight.shape and self.weight.device.type != "meta":
            narrow = given.dtype == r.forward.dtype
            if narrow and self.weight_scale is None:
                scale = state_dict.get(names[1])
                if scale is None or scale.shape != r.weight.count(given.shape):
                    errors.append(f"{names[0]} is in FP8 with other scales than those of the recipe {r.name}")
                    return
                for name in names[1:]:
                    state_dict.pop(name, None)
                state_dict[names[0]] = restored(given, scale, r.weight).dequantize()
            elif not narrow and self.weight_scale is not None:
                history = prefix + "product.amax"
                with torch.no_grad():
                    if history in state_dict:  # that of the given weight, to which this one's number is added
                        self.product.amax.copy_(state_dict[history])
                    made = self.product.encode(given.to(self.weight.device), turned=not r.turns)
                state_dict |= {n: t for n, t in zip(names, made, strict=True) if t is not None}
                if history in state_dict:
                    state_dict[history] = self.product.amax.clone()
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[no-untyped-call]


SCALES = ("weight_scale", "weight_turned", "weight_turned_scale")
"""Buffers of an FP8Linear whose weight is stored in FP8."""
