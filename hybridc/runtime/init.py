"""Fillers: how parameters start. Each is called with a tensor and a generator and fills the tensor in place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def _empty(tensor: Tensor) -> Tensor:
    """Room for fp32 draws of a tensor's shape, whatever dtype and device are the defaults at the time."""
    return torch.empty(tensor.shape, dtype=torch.float32, device="cpu")


def _uniform(tensor: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """fp32 draws of the tensor's shape on the generator's device, so that dtype and device change no number."""
    return _empty(tensor).uniform_(low, high, generator=generator)


@dataclass(frozen=True)
class normal:
    """N(0, std)."""

    std: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.copy_(_empty(tensor).normal_(0.0, self.std, generator=generator))


@dataclass(frozen=True)
class uniform:
    """U(-bound, bound)."""

    bound: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.copy_(_uniform(tensor, -self.bound, self.bound, generator))


@dataclass(frozen=True)
class zeros:
    """All 0."""

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.zero_()


@dataclass(frozen=True)
class ones:
    """All 1."""

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.fill_(1.0)


@dataclass(frozen=True)
class constant:
    """All `value`."""

    value: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.fill_(self.value)


@dataclass(frozen=True)
class ternary:
    """-1, 0 and 1 as often as each other, four in a byte, each plus 1 in 2 bits."""

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        values = torch.randint(0, 3, (4, *tensor.shape), dtype=torch.uint8, generator=generator, device="cpu")
        tensor.copy_(values[0] | values[1] << 2 | values[2] << 4 | values[3] << 6)


@dataclass(frozen=True)
class a_log:
    """log A with A ~ U(low, high), as Mamba-2 starts."""

    low: float
    high: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.copy_(_uniform(tensor, self.low, self.high, generator).log())


@dataclass(frozen=True)
class a_log_range:
    """log(1 .. N) in every row, the real part of S4D's states, as Mamba starts."""

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.copy_(torch.arange(1, tensor.shape[-1] + 1, dtype=torch.float32).log().expand(tensor.shape))


@dataclass(frozen=True)
class dt_bias:
    """The inverse softplus of dt with log dt ~ U(log low, log high), dt at least `floor` (Mamba)."""

    low: float
    high: float
    floor: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        dt = _uniform(tensor, math.log(self.low), math.log(self.high), generator).exp().clamp(min=self.floor)
        tensor.copy_(dt + torch.log(-torch.expm1(-dt)))


@dataclass(frozen=True)
class softplus_decay:
    """The x with exp(-c softplus(x)) ~ U(low, high): decays of the RG-LRU whose gate is open (De et al., 2024)."""

    low: float
    high: float
    c: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.copy_((_uniform(tensor, self.low, self.high, generator).log() / -self.c).expm1().log())
