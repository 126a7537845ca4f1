"""Low-rank adapters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Lora(nn.Module):
    """up_n(down_n(x)) for each part n of a fused projection, side by side (Hu et al., 2021).

    x [..., width] -> [..., sum of parts]. Parameters: down.weight [number of parts · rank, width], up.N.weight
    [part N, rank].
    """

    def __init__(self, width: int, rank: int, parts: Sequence[int]) -> None:
        super().__init__()
        self.down = nn.Linear(width, rank * len(parts), bias=False)
        self.up = nn.ModuleList(nn.Linear(rank, part, bias=False) for part in parts)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.down(x).chunk(len(self.up), dim=-1)
        return torch.cat([up(part) for up, part in zip(self.up, parts, strict=True)], dim=-1)
