"""Norms that torch has not: zero-centred (Gemma) and gated (Mamba-2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ZeroCenteredRMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · (1 + weight) over the last dim; fp32 inside. Parameter: weight [dim]."""

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] -> [..., dim], in x's dtype."""
        inside = torch.promote_types(x.dtype, torch.float32)
        return F.rms_norm(x.to(inside), (x.shape[-1],), 1.0 + self.weight.to(inside), self.eps).to(x.dtype)


class GatedRMSNorm(nn.Module):
    """rmsnorm(x · act(gate)) when `gate_first`, else rmsnorm(x) · act(gate); fp32 inside. `act` is silu or sigmoid.

    The mean square is taken over each of `groups` parts of the `dim` channels. Parameter: weight [dim].
    """

    def __init__(self, dim: int, *, eps: float, groups: int = 1, gate_first: bool = True, act: str = "silu") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps, self.groups, self.gate_first = eps, groups, gate_first
        self.act = torch.sigmoid if act == "sigmoid" else F.silu

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """x and gate [..., dim] -> [..., dim], in x's dtype."""
        y, g = x.float(), self.act(gate.float())
        if self.gate_first:
            y = y * g
        if self.groups == 1:
            y = F.rms_norm(y, (y.shape[-1],), None, self.eps)
        else:
            grouped = y.unflatten(-1, (self.groups, -1))
            y = F.rms_norm(grouped, (grouped.shape[-1],), None, self.eps).flatten(-2)
        y = y * self.weight.float()
        return (y if self.gate_first else y * g).to(x.dtype)
