"""FP8 recipes as Transformer Engine has them, and what its products share: rows filled up, weights quantized once."""

from __future__ import annotations

from typing import Any

import torch
import transformer_engine.pytorch as engine
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_engine.common.recipe import (
    Float8BlockScaling,
    Float8CurrentScaling,
    Format,
    MMParams,
    MXFP8BlockScaling,
    QParams,
)
from transformer_engine.common.recipe import Recipe as EngineRecipe

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.quant.linear import FP8Input
from hybridc.runtime.quant.recipes import Recipe as OurRecipe
from hybridc.runtime.quant.recipes import recipe as ours
from hybridc.runtime.versions import Held

FORMATS = {"e4m3": Format.E4M3, "e5m2": Format.HYBRID}
"""By the element format of gradients; the forward's operands are E4M3 in both."""

MISSING = {
    "row": "has no recipe with a scale for each row",
    "delayed": "moves the histories of all layers on whenever one region of FP8 ends, and each layer here is a region",
}

ROWS = {"tensor": 16, "block128": 16, "mx": 32}
"""Rows of an operand come in multiples of this: the weight's gradient sums over them."""


def recipe(name: str, *, fwd: str = "e4m3", bwd: str = "", scale: str = "fp32") -> EngineRecipe:
    """Transformer Engine's form of a recipe, options as in `hybridc.runtime.quant.recipes.recipe`.

    Raises UsageError for what it has not: `row`, `delayed`, and E5M2 in the forward.
    """
    gradients = ours(name, fwd=fwd, bwd=bwd, scale=scale).backward.name
    if name in MISSING:
        raise UsageError(f"Transformer Engine {MISSING[name]}", "use tensor, block128 or mx, or compile without `te`")
    if fwd != "e4m3":
        raise UsageError("Transformer Engine has no recipe with E5M2 in the forward", "leave out fwd=e5m2")
    if name == "mx":
        return MXFP8BlockScaling(fp8_format=FORMATS[gradients])
    power = scale == "pow2"
    made: Float8CurrentScaling | Float8BlockScaling
    if name == "tensor":
        # sums of the forward in fp32 as well, which is not the default
        sums = MMParams(use_split_accumulator=True)
        made = Float8CurrentScaling(use_power_2_scales=power, fp8_format=FORMATS[gradients], fp8_gemm_fprop=sums)
    else:
        made = Float8BlockScaling(use_f32_scales=not power, fp8_format=FORMATS[gradients])
    # these come from the environment when the classes are made, whatever the options above say
    made.fp8_quant_fwd_inp = made.fp8_quant_fwd_weight = made.fp8_quant_bwd_grad = QParams(power_2_scale=power)
    return made


def value(x: Tensor | FP8Input | Stored) -> Tensor:
    """The value of what stands for one. That of a stored one is computed anew, and its gradient goes to the carrier."""
    if isinstance(x, Stored):
        return x.again() + x.carrier
    return x if isinstance(x, Tensor) else x.x


class FP8Product(nn.Module):
    """How a product is computed in a recipe. Remembers which weights its module has quantized, so that a step with
    several micro-batches quantizes them once."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.name, self.recipe, self.rows = name, recipe(name, **options), ROWS[name]
        self._held: Held[None] = Held()

    @classmethod
    def of(cls, product: nn.Module | None) -> FP8Product | None:
        """The same recipe as that of a product of ours. Raises UsageError where that has no recipe of FP8."""
        if product is None or isinstance(product, cls):
            return product
        r = getattr(product, "recipe", None)
        if not isinstance(r, OurRecipe):
            raise UsageError(f"Transformer Engine has no {type(product).__name__}", "compile without `te`")
        power = "pow2" if r.activation.power and r.name != "mx" else "fp32"
        return cls(r.name, fwd=r.forward.name, bwd=r.backward.name, scale=power)

    def region(self) -> engine.autocast:
        """The region in which Transformer Engine's modules compute in the recipe."""
        return engine.autocast(enabled=True, recipe=self.recipe)

    def filled(self, x: Tensor) -> Tensor:
        """x [rows, in] with rows of zeros below, up to a multiple; zeros raise no scale and add nothing to a sum."""
        missing = -x.shape[0] % self.rows if x.shape[0] else self.rows
        return F.pad(x, (0, 0, 0, missing)) if missing else x

    def fresh(self, module: nn.Module, weight: Tensor, x: Tensor) -> bool:
        """Whether `module` has to quantize its weight: `is_first_microbatch`, by the version of the parameter.

        Weights that were quantized for a forward alone serve no backward, and are made anew for the first that has one.
        """
        before, backward = self._held.made, torch.is_grad_enabled() and x.requires_grad
        self._held((weight,), module._fp8_workspaces.clear, turned=backward)
        return self._held.made > before

    def extra_repr(self) -> str:
        """The recipe's name, for print(net)."""
        return self.name
