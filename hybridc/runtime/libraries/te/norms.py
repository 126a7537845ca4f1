"""Norms by Transformer Engine; fp32 inside."""

from __future__ import annotations

import transformer_engine.pytorch as engine
from torch import Tensor

from hybridc.runtime.errors import UsageError
from hybridc.runtime.libraries.te.state import ParametersOnly, device


class RMSNorm(ParametersOnly, engine.RMSNorm):
    """x / sqrt(mean(x²) + eps) · weight: x [..., dim] -> [..., dim]. Parameter: weight [dim]."""

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__(dim, eps=eps, device=device())


class ZeroCenteredRMSNorm(ParametersOnly, engine.RMSNorm):
    """x / sqrt(mean(x²) + eps) · (1 + weight): x [..., dim] -> [..., dim], in x's dtype. Parameter: weight [dim]."""

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__(dim, eps=eps, zero_centered_gamma=True, device=device())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] -> [..., dim]."""
        return super().forward(x).to(x.dtype)


class LayerNorm(ParametersOnly, engine.LayerNorm):
    """(x - mean) / sqrt(var + eps) · weight + bias: x [..., dim] -> [..., dim]. Parameters: weight and bias [dim]."""

    def __init__(self, dim: int, *, eps: float, bias: bool = True) -> None:
        if not bias:
            raise UsageError("Transformer Engine's LayerNorm always has a bias", "compile without `te`, or with a bias")
        super().__init__(dim, eps=eps, device=device())
