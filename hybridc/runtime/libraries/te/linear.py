"""Linear maps by Transformer Engine, in the module's dtype and in FP8."""

from __future__ import annotations

from typing import Any

import transformer_engine.pytorch as engine
from torch import Tensor

from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.libraries.te.recipes import FP8Product, value
from hybridc.runtime.libraries.te.state import ParametersOnly, device
from hybridc.runtime.quant.linear import FP8Input


class Linear(ParametersOnly, engine.Linear):
    """y = x Wᵀ + b: x [..., ins] -> [..., out]. Parameters: weight [out, ins], bias [out]."""

    def __init__(self, ins: int, out: int, bias: bool = True) -> None:
        super().__init__(ins, out, bias=bias, device=device())


class FP8Linear(ParametersOnly, engine.Linear):
    """y = x Wᵀ + b with all three products in FP8; options as `hybridc.runtime.ops.FP8Linear` has them.

    Widths are multiples of 16 (`mx`: 32). Rows are filled up with zeros to such a multiple. Raises UsageError for
    recipes that Transformer Engine has not (see `recipes.recipe`).
    """

    def __init__(self, ins: int, out: int, name: str, *, bias: bool = False, **options: Any) -> None:
        super().__init__(ins, out, bias=bias, device=device())
        self.product = FP8Product(name, **options)

    def forward(self, x: Tensor | FP8Input | Stored) -> Tensor:
        """x [..., ins] -> [..., out]. What came quantized is taken as it was before: each product quantizes its own."""
        x = value(x)
        rows = x.reshape(-1, x.shape[-1])
        fresh = self.product.fresh(self, self.weight, x)
        with self.product.region():
            y = super().forward(self.product.filled(rows), is_first_microbatch=fresh)
        return y[: rows.shape[0]].reshape(*x.shape[:-1], y.shape[-1])
