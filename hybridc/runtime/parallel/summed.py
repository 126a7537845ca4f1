"""A projection of channels that ranks have between them, whose result all of them go on with."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from hybridc.runtime.parallel.axis import Axis


class SummedLinear(nn.Linear):
    """x Wᵀ of all ranks' channels, of which each has its own: weight [out, channels / ranks].

    Ranks use the result for channels of their own, so that its gradient is a sum over ranks too.
    """

    tp = Axis("tp")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., channels / ranks] -> [..., out]."""
        return self.tp.all_reduce(F.linear(x, self.weight), back="all_reduce")
