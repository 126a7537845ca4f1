"""BitNet b1.58 in training form: ternary weights and 8-bit activations, made anew in each forward (Ma et al., 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST = 1e-5
"""Means and maxima below this count as this, so that zeros have a scale."""


class _StraightThrough(torch.autograd.Function):
    """`made` in the forward; the gradient is that of the value which it was made of."""

    @staticmethod
    def forward(ctx, value, made):  # type: ignore[no-untyped-def]
        return made

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad, None


def ternary(weight: Tensor) -> Tensor:
    """Each weight as -s, 0 or s, the nearest, where s is the mean absolute weight; the gradient passes unchanged."""
    wide = weight.detach().float()
    scale = 1.0 / wide.abs().mean().clamp(min=SMALLEST)
    made = (wide * scale).round().clamp(-1, 1) / scale
    return _StraightThrough.apply(weight, made.to(weight.dtype))  # type: ignore[no-any-return, no-untyped-call]


def eight_bits(x: Tensor) -> Tensor:
    """Each token's channels on 256 levels between -128/127 and 1 times its largest; the gradient passes unchanged."""
    wide = x.detach().float()
    largest = wide.abs().amax(-1, keepdim=True).clamp(min=SMALLEST)
    made = (wide * 127.0 / largest).round().clamp(-128, 127) * largest / 127.0
    return _StraightThrough.apply(x, made.to(x.dtype))  # type: ignore[no-any-return, no-untyped-call]


class BitInput:
    """A tensor that several BitLinears take: brought to 8 bits once. It has the tensor's shape, dtype and device."""

    def __init__(self, x: Tensor) -> None:
        self.x = eight_bits(x)
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device


class BitProduct(nn.Module):
    """x Wᵀ + b in BitNet's formats, with weights that are not its own, such as experts'."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, index: int = 0) -> Tensor:
        """x [..., in], weight [out, in] -> [..., out]."""
        return F.linear(eight_bits(x), ternary(weight), bias)


class BitLinear(nn.Linear):
    """y = eight_bits(x) ternary(W)ᵀ + b. `parts` are the rows of projections fused in W, each with its own scale."""

    def __init__(self, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> None:
        super().__init__(ins, out, bias=bias)
        self.parts = parts

    def forward(self, x: Tensor | BitInput) -> Tensor:
        """x [..., in] -> [..., out]."""
        made = x.x if isinstance(x, BitInput) else eight_bits(x)
        if len(self.parts) < 2:
            return F.linear(made, ternary(self.weight), self.bias)
        return F.linear(made, torch.cat([ternary(w) for w in self.weight.split(self.parts)]), self.bias)
