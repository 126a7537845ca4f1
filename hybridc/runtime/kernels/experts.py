"""Experts on GPUs: tokens sorted by expert, two grouped products, and back, without the host knowing any count.

Traffic for T tokens, k choices, C channels, H hidden, in bf16: sorting reads 2 T C bytes and writes 2 k T C; the
first product reads these and writes 4 k T H (2 k T H without a gate); the activation reads them and writes 2 k T H; the
second product reads these and writes 2 k T C, which are read once for the result, 2 T C. So 4 k T C + 2 T C around the
products, which read the weights of experts that have tokens once for each 128 of their rows. In FP8 the first of these
is T C + k T C, and the activation writes 1 k T H where `inside` stores its result quantized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from hybridc.runtime.kernels.bit_linear import BitInput as KernelInput
from hybridc.runtime.kernels.experts_fp8 import RECIPES, Call, HeldWeights, fp8_experts_linear
from hybridc.runtime.kernels.grouped_gemm import grouped_linear
from hybridc.runtime.kernels.moe import permute, sort_by_expert, unpermute
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.ops.autocast import result_dtype
from hybridc.runtime.ops.bit_linear import (
    BitInput,
    BitProduct,
    eight_bits,
    straight_through,
    ternary_experts,
    whole_input,
)
from hybridc.runtime.ops.moe import Experts as Plain
from hybridc.runtime.parallel.across import Across
from hybridc.runtime.quant.linear import FP8Input, FP8Product

ALIGN = 16
"""Rows of an expert come in multiples of this where FP8 operands are transposed, so that they are read 16 bytes at
once."""

Input: TypeAlias = Tensor | FP8Input | BitInput | KernelInput | Stored


class Experts(Plain):
    """`ops.Experts` in Triton: the same parameters and results.

    `inside` is a kernel that turns the first product's rows, [rows, 2 hidden] or [rows, hidden], into what the second
    one reads, [rows, hidden] as a tensor or stored quantized; without one, torch does. It takes each row for itself.

    Raises ValueError for products in FP8's delayed recipe, whose history experts do not have each for itself.
    """

    def __init__(self, *given: Any, inside: Callable[[Tensor], Tensor | Stored] | None = None, **options: Any) -> None:
        super().__init__(*given, **options)
        self.inside = self._inside if inside is None else inside
        self._held: list[HeldWeights | None] = []
        for product in (self.first_product, self.down_product):
            fp8 = product if isinstance(product, FP8Product) else None
            if fp8 is not None and fp8.recipe.name not in RECIPES:
                raise ValueError(f"experts on GPUs have no recipe {fp8.recipe.name}: choose {', '.join(RECIPES)}")
            self._held.append(HeldWeights(fp8) if fp8 is not None else None)

    def forward(self, x: Input, weights: Tensor, ids: Tensor) -> Tensor:
        """x [..., dim], weights and ids [..., k] -> Σ over the choices of weight · expert(x), [..., dim].

        An id that is none of the experts, such as -1, adds nothing. An expert without tokens gets a zero gradient. The
        sum over the choices is taken in their order, so the result and its gradients are the same in every run.
        """
        k, shape = ids.shape[-1], x.shape
        # in a checkpointed forward too, whose products are made once more with gradients
        learns = torch.is_grad_enabled() or self.training
        # with a bias, fillers are no zeros inside, and as many as the emulation has are to share scales with rows
        wide = learns and any(self._held) and not self.bias
        to = sort_by_expert(ids.reshape(-1, k), self.down.shape[0], ALIGN if wide else None)
        call = Call(to, ALIGN if wide else 1, learns)
        first_bias, down_bias = (getattr(self, f"{self.first}_bias"), self.down_bias) if self.bias else (None, None)
        rows = self.inside(self._product(0, x, getattr(self, self.first), first_bias, call, sort=True))
        made = self._product(1, rows, self.down, down_bias, call, sort=False)
        return unpermute(made, weights.reshape(-1, k), to).view(shape)

    def _product(self, n: int, x: Input, weight: Tensor, bias: Tensor | None, call: Call, *, sort: bool) -> Tensor:
        kind, held = (self.first_product, self.down_product)[n], self._held[n]
        dtype = result_dtype(x)
        with torch.autocast(x.device.type, enabled=False):
            if held is not None:
                return fp8_experts_linear(x, weight, bias, held, call, sort=sort, dtype=dtype)
            if isinstance(kind, BitProduct):
                value, weight = _eight_bits(x, kind.across), ternary_experts(weight, kind.across)
            elif kind is None and isinstance(x, Tensor):
                value = x
            else:
                raise TypeError(f"a product of experts in {type(kind).__name__} with an input of {type(x).__name__}")
            value = value.reshape(-1, value.shape[-1]).to(dtype)
            rows = permute(value, call.to) if sort else value
            return grouped_linear(rows, weight.to(dtype), call.to.offsets, None if bias is None else bias.to(dtype))


def _eight_bits(x: Input, across: Across) -> Tensor:
    """An input of a product in BitNet's formats, which may be in 8 bits already."""
    whole_input(x, across)
    if isinstance(x, BitInput):
        return x.x
    if isinstance(x, KernelInput):
        return straight_through(x.carrier, (x.levels.data * x.levels.scale[..., None]).to(x.dtype))
    if isinstance(x, Stored):
        return straight_through(x.carrier, (x.data.float() * x.scale).to(x.dtype))
    return eight_bits(x, across)
