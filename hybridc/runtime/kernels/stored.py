"""A value that a generated kernel has stored quantized, without the value itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Stored:
    """`data` [..., C] in FP8 or int8 and `scale` fp32 [..., ⌈C / 128⌉] or [..., 1]: a value is data · scale.

    `carrier` [..., C] stands for the value in autograd: what reads the value hands its gradient to the carrier. `again`
    computes the value anew, for what needs it with other scales (a weight's gradient has them along tokens).
    """

    data: Tensor
    scale: Tensor
    carrier: Tensor
    again: Callable[[], Tensor]

    @property
    def shape(self) -> torch.Size:
        return self.carrier.shape

    @property
    def dtype(self) -> torch.dtype:
        """That of the value."""
        return self.carrier.dtype

    @property
    def device(self) -> torch.device:
        return self.carrier.device
