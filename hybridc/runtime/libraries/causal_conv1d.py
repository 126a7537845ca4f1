"""causal-conv1d (Dao): the causal depthwise convolution in CUDA, for 2 to 4 taps and multiples of 8 channels."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hybridc.runtime.libraries.documents import numbers, offsets, trained
from hybridc.runtime.libraries.missing import missing
from hybridc.runtime.ops import conv

try:
    from causal_conv1d import causal_conv1d_fn, causal_conv1d_update
    from causal_conv1d.causal_conv1d_varlen import causal_conv1d_varlen_states
except ImportError as error:
    raise missing("causal-conv1d", error) from error

if TYPE_CHECKING:
    from hybridc.runtime.cache import ConvState, MambaState
    from hybridc.runtime.context import Context

ALIGNED = 8
"""Elements that rows of channels must be a multiple of apart, since the kernels read as many at once."""


class CausalConv1d(conv.CausalConv1d):
    """`hybridc.runtime.ops.CausalConv1d` with causal-conv1d's kernels.

    Parameters: weight [channels, taps], bias [channels]. Packed documents are computed in one call, unless one of them
    goes on from a cached state: then each in a call of its own, since a first state is a row's, not a document's.
    """

    def forward(
        self, x: Tensor, ctx: Context, state: ConvState | MambaState | None = None, *, silu: bool = False
    ) -> Tensor:  # fmt: skip
        """x [B, S, channels] -> [B, S, channels], through SiLU if `silu`; reads and replaces the state's last taps - 1
        inputs."""
        act = "silu" if silu else None
        if state is not None and all(n == 1 for n in ctx.lengths) and not trained(x, self.weight, self.bias):
            return self._step(x.flatten(0, 1), state, act).view_as(x)
        if ctx.borders is None:
            return self._rows(x, state, act)
        if state is None or not any(ctx.past):
            y = self._called(x, act, numbers(ctx, x.device))
            if state is not None:
                last = causal_conv1d_varlen_states(
                    x.detach()[0], offsets(ctx, torch.int32, x.device), self.weight.shape[1] - 1
                )
                state.keep_conv(last.transpose(1, 2))
            return y
        before = state.conv.to(x.dtype)
        ys, ends = [], []
        for n, (start, end) in enumerate(pairwise(ctx.borders)):
            part = x[:, start:end]
            if start < end:
                ys.append(self._called(part, act, before=before[n : n + 1]))
            ends.append(self._last(before[n : n + 1], part))
        y = torch.cat(ys, dim=1)
        state.keep_conv(torch.cat(ends))
        return y

    def _rows(self, x: Tensor, state: ConvState | MambaState | None, act: str | None) -> Tensor:
        """Rows that are a document each."""
        if state is None:
            return self._called(x, act)
        before = state.conv.to(x.dtype)
        y = self._called(x, act, before=before)
        state.keep_conv(self._last(before, x))
        return y

    def _last(self, before: Tensor, x: Tensor) -> Tensor:
        """The last taps - 1 inputs of before [B, taps - 1, channels] and x [B, S, channels] behind it."""
        front = self.weight.shape[1] - 1
        return torch.cat((before, x[:, -front:]), dim=1)[:, -front:]

    def _called(
        self, x: Tensor, act: str | None, documents: Tensor | None = None, before: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """x [B, S, channels], documents int32 [B, S], before [B, taps - 1, channels] -> [B, S, channels]."""
        before = None if before is None else before.transpose(1, 2)
        bias = None if self.bias is None else self.bias.to(self.weight.dtype)
        x = _channels_last(x).transpose(1, 2)
        y = causal_conv1d_fn(x, self.weight, bias, seq_idx=documents, initial_states=before, activation=act)
        return y.transpose(1, 2)

    def _step(self, x: Tensor, state: ConvState | MambaState, act: str | None) -> Tensor:
        """One token a document: x [B, channels] -> [B, channels]."""
        # the kernel writes into what it is given, which an earlier forward's backward may still read
        line = state.conv.to(x.dtype, copy=torch.is_grad_enabled()).transpose(1, 2)
        bias = None if self.bias is None else self.bias.to(self.weight.dtype)
        y = causal_conv1d_update(x, line, self.weight, bias, activation=act)
        state.keep_conv(line.transpose(1, 2))
        return y


def _channels_last(x: Tensor) -> Tensor:
    """x [B, S, channels] as the kernels read it: with neighbouring channels side by side, and aligned."""
    aligned = x.stride(2) == 1 and not any(x.stride(dim) % ALIGNED for dim in (0, 1))
    if aligned and x.storage_offset() % ALIGNED == 0 and x.stride(1) > 1:
        return x
    return x.clone(memory_format=torch.contiguous_format)
