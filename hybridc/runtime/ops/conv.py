"""Causal depthwise convolution over time, with document borders and a state of the last taps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from hybridc.runtime.cache import ConvState, MambaState
    from hybridc.runtime.context import Context


class CausalConv1d(nn.Module):
    """y_t = bias + Σ_k weight[:, k] · x_{t - taps + 1 + k}, zeros before a document's start, and SiLU of it if wanted.

    Parameters: weight [channels, taps], bias [channels].
    """

    def __init__(self, channels: int, taps: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        nn.init.uniform_(self.weight, -(taps**-0.5), taps**-0.5)

    def forward(
        self, x: Tensor, ctx: Context, state: ConvState | MambaState | None = None, *, silu: bool = False
    ) -> Tensor:  # fmt: skip
        """x [B, S, channels] -> [B, S, channels], through SiLU if `silu`; reads and replaces the state's last taps - 1
        inputs."""
        y = self._convolved(x, ctx, state)
        return F.silu(y) if silu else y

    def _convolved(self, x: Tensor, ctx: Context, state: ConvState | MambaState | None) -> Tensor:
        front = self.weight.shape[1] - 1
        if ctx.borders is not None:
            return self._packed(x, ctx, state)
        if state is None:
            return self._taps(F.pad(x, (0, 0, front, 0)))
        line = torch.cat((state.conv.to(x.dtype), x), dim=1)
        state.keep_conv(line[:, line.shape[1] - front :])
        return self._taps(line)

    def _taps(self, line: Tensor) -> Tensor:
        """line [B, taps - 1 + S, channels] -> [B, S, channels]; sums in fp32."""
        inside = torch.promote_types(line.dtype, torch.float32)
        wide, weight = line.to(inside), self.weight.to(inside)
        length = line.shape[1] - weight.shape[1] + 1
        if self.bias is None:
            y = wide[:, :length] * weight[:, 0]
        else:
            y = torch.addcmul(self.bias.to(inside), wide[:, :length], weight[:, 0])
        for k in range(1, weight.shape[1]):
            y.addcmul_(wide[:, k : k + length], weight[:, k])
        return y.to(line.dtype)

    def _packed(self, x: Tensor, ctx: Context, state: ConvState | MambaState | None) -> Tensor:
        """Each document gets taps - 1 places of its own in front, for zeros or its cached inputs."""
        taps = self.weight.shape[1]
        tokens, fronts, ends = ctx.plan(("taps", taps), lambda: _places(ctx.lengths, taps, x.device))
        line = x.new_zeros(x.shape[1] + len(ctx.lengths) * (taps - 1), x.shape[2])
        line = line.index_copy(0, tokens, x[0])
        if state is not None:
            line = line.index_copy(0, fronts.reshape(-1), state.conv.to(x.dtype).flatten(0, 1))
            state.keep_conv(line[ends])
        return self._taps(line[None])[:, tokens - (taps - 1)]


def _places(lengths: list[int], taps: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """In the line with fronts: the places of tokens [T], of fronts and of the last inputs [documents, taps - 1]."""
    count = torch.tensor(lengths, dtype=torch.int64, device=device)
    ends = (count + (taps - 1)).cumsum(0)
    document = torch.arange(len(lengths), device=device).repeat_interleave(count)
    tokens = torch.arange(int(sum(lengths)), device=device) + (document + 1) * (taps - 1)
    steps = torch.arange(taps - 1, device=device)
    starts = ends - count - (taps - 1)
    return tokens, starts[:, None] + steps, ends[:, None] - (taps - 1) + steps
