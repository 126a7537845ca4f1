"""Mixtures of experts by Transformer Engine's grouped products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformer_engine.pytorch as engine
from torch import Tensor, nn
from torch.func import functional_call

from hybridc.runtime import ops
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.libraries.te.recipes import FP8Product, value
from hybridc.runtime.ops.moe import sorted_by_expert


class Experts(ops.Experts):
    """As `hybridc.runtime.ops.Experts`, with the same parameters.

    `products` are FP8 products of any form, of which the recipes are taken; `inside` makes the rows that the second
    product reads of those of the first one, in place of torch. Two GroupedLinears without memory of their own compute
    with slices of the stacked parameters. How many rows each expert has is read back from the GPU, once a layer:
    Transformer Engine splits its operands on the host.
    """

    def __init__(
        self,
        experts: int,
        dim: int,
        hidden: int,
        *,
        gated: bool = True,
        bias: bool = False,
        products: tuple[nn.Module | None, nn.Module | None] = (None, None),
        inside: Callable[[Tensor], Tensor | Stored] | None = None,
        **options: Any,
    ) -> None:
        first, second = (FP8Product.of(p) for p in products)
        super().__init__(experts, dim, hidden, gated=gated, bias=bias, products=(first, second), **options)
        self.inside = inside or self._inside
        widths = ((dim, 2 * hidden if gated else hidden), (hidden, dim))
        # in a tuple, so that their parameters are none of this module's
        self.grouped = tuple(engine.GroupedLinear(experts, i, o, bias=bias, device="meta") for i, o in widths)

    def forward(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """x [..., dim], weights and ids [..., k] -> Σ over the choices of weight · expert(x), [..., dim]."""
        flat, chosen = x.reshape(-1, x.shape[-1]), ids.reshape(-1, ids.shape[-1])
        multiple = max((p.rows for p in (self.first_product, self.down_product) if p is not None), default=0)
        tokens, places, counts = sorted_by_expert(chosen, self.down.shape[0], multiple)
        if not tokens.shape[0]:
            return x * 0
        rows = flat[tokens]
        if multiple:
            # fillers of zeros, which raise no scale that real rows share with them
            real = torch.zeros(rows.shape[0], 1, dtype=torch.bool, device=rows.device)
            rows = rows.where(real.index_fill(0, places.reshape(-1), True), 0)
        inside = self.inside(self._grouped(0, rows, self.first, counts))
        outputs = self._grouped(1, value(inside), "down", counts)
        return (outputs[places] * weights.reshape(*places.shape, 1)).sum(1).view_as(x)

    def _grouped(self, which: int, x: Tensor, name: str, counts: list[int]) -> Tensor:
        """The product of each expert's rows with its weight: [rows, out]."""
        module, product = self.grouped[which], (self.first_product, self.down_product)[which]
        stacked = getattr(self, name)
        given = {f"weight{n}": w for n, w in enumerate(stacked.unbind())}
        if self.bias:
            bias: Tensor | None = getattr(self, f"{name}_bias")
            # of ranks that add up, the first one alone has it
            rows = stacked.new_zeros(stacked.shape[:2]) if bias is None else bias
            given |= {f"bias{n}": b for n, b in enumerate(rows.unbind())}
        if product is None:
            return _call(module, given, x, counts)
        fresh = product.fresh(module, stacked, x)
        with product.region():
            return _call(module, given, x, counts, is_first_microbatch=fresh)


def _call(module: nn.Module, given: dict[str, Tensor], x: Tensor, counts: list[int], **options: bool) -> Tensor:
    return functional_call(module, given, (x, counts), options)
