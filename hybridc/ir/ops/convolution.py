"""The causal convolution over time that recurrent ops have inside."""

from __future__ import annotations

from hybridc.ir.emit import Emit, call
from hybridc.ir.ops.mlp import ACTIVATIONS


def causal_conv1d(emit: Emit, channels: int, taps: int, *, bias: bool) -> str:
    """The constructor of the convolution's module."""
    return call(emit.part("causal_conv1d", channels=channels, taps=taps), channels, taps, bias=bias)


def convolved(x: str, act: str = "silu") -> str:
    """A call of the part `conv`, and the activation behind it: silu is the module's own."""
    if act == "silu":
        return f"self.conv({x}, ctx, state, silu=True)"
    return ACTIVATIONS[act].format(f"self.conv({x}, ctx, state)")
