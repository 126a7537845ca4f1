"""Norms of channels that tensor-parallel ranks have between them: their means are over all of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hybridc.runtime.ops.norms import GatedRMSNorm, ZeroCenteredRMSNorm
from hybridc.runtime.parallel.axis import Axis


def _mean(x: Tensor, axis: Axis) -> Tensor:
    """The mean over a rank's channels and all the others': [..., n] -> [..., 1], in the dtype of x.

    Each rank's channels go on with a part of what the mean's gradient is made of, so that is summed too. Channels that
    several ranks have count as often as each other, as kv heads do that ranks have copies of.
    """
    return axis.all_reduce(x.sum(-1, keepdim=True), back="all_reduce") / (x.shape[-1] * axis.size)


class SplitRMSNorm(nn.RMSNorm):
    """`nn.RMSNorm` of a rank's channels."""

    tp = Axis("tp")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., n] -> [..., n]."""
        wide = x.float()
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        y = wide * (_mean(wide.square(), self.tp) + eps).rsqrt()
        return (y if self.weight is None else y * self.weight.float()).to(x.dtype)


class SplitZeroCenteredRMSNorm(ZeroCenteredRMSNorm):
    """`ZeroCenteredRMSNorm` of a rank's channels."""

    tp = Axis("tp")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., n] -> [..., n]."""
        wide = x.float()
        y = wide * (_mean(wide.square(), self.tp) + self.eps).rsqrt()
        return (y * (1.0 + self.weight.float())).to(x.dtype)


class SplitLayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` of a rank's channels."""

    tp = Axis("tp")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., n] -> [..., n]."""
        wide = x.float()
        centred = wide - _mean(wide, self.tp)
        y = centred * (_mean(centred.square(), self.tp) + self.eps).rsqrt()
        y = y if self.weight is None else y * self.weight.float()
        return (y if self.bias is None else y + self.bias.float()).to(x.dtype)


class SplitGatedRMSNorm(GatedRMSNorm):
    """`GatedRMSNorm` of a rank's channels, which are a part of one of its groups."""

    tp = Axis("tp")

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """x and gate [..., n] -> [..., n]."""
        y, g = x.float(), self.act(gate.float())
        if self.gate_first:
            y = y * g
        sharing = self.tp.size // self.groups
        mine = torch.zeros(self.groups, device=x.device)
        mine[self.tp.rank // sharing] = 1.0
        sums = self.tp.all_reduce(y.square().sum(-1, keepdim=True) * mine, back="all_reduce")
        mean = (sums * mine).sum(-1, keepdim=True) / (y.shape[-1] * sharing)
        y = y * (mean + self.eps).rsqrt() * self.weight.float()
        return (y if self.gate_first else y * g).to(x.dtype)
