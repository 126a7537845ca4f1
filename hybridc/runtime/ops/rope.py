"""Rotary positions: tables of cosines and sines, and their application (Su et al., 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Tables(NamedTuple):
    """cos and sin for positions [B, S]: [B, S, 1, dim / 2] fp32; whether a pair stands side by side."""

    cos: Tensor
    sin: Tensor
    interleaved: bool


@dataclass(frozen=True)
class Rope:
    """`dim` channels of a head rotate, in pairs (i, i + dim / 2), or (2 i, 2 i + 1) when `interleaved`.

    Kinds: `default`; `linear`, positions over `factor`; `llama3`, only wavelengths beyond original_max /
    low_freq_factor are stretched by `factor`, with a smooth passage (Llama 3.1); `yarn`, a blend by wavelength, with
    cos and sin scaled by `attention_factor`, 0.1 ln(factor) + 1 unless given (Peng et al., 2023); `longrope`,
    frequencies over `short`, or over `long` in documents beyond original_max tokens (Ding et al., 2024).
    """

    dim: int
    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    interleaved: bool = False

    @property
    def by_length(self) -> bool:
        """Whether a document's length changes its frequencies."""
        return self.kind == "longrope"

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Radians per position of each pair, [dim / 2] fp32."""
        exponent = torch.arange(0, self.dim, 2, dtype=torch.float32, device=device) / self.dim
        base = 1.0 / (self.theta**exponent)
        if self.kind == "linear":
            return base / self.factor
        if self.kind == "llama3":
            return self._llama3(base)
        if self.kind == "yarn":
            return self._yarn(base)
        return base

    def _llama3(self, base: Tensor) -> Tensor:
        turns = self.original_max * base / (2 * math.pi)
        smooth = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        smooth = smooth.clamp(0.0, 1.0)
        return (1 - smooth) * base / self.factor + smooth * base

    def _yarn(self, base: Tensor) -> Tensor:
        def pair(turns: float) -> float:
            """The pair that turns this often over the original context."""
            return self.dim * math.log(self.original_max / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.dim - 1)
        high = high + 0.001 if low == high else high
        index = torch.arange(self.dim // 2, dtype=torch.float32, device=base.device)
        stretched = ((index - low) / (high - low)).clamp(0, 1)
        return base / self.factor * stretched + base * (1 - stretched)

    def magnitude(self) -> float:
        """What cos and sin are multiplied with."""
        if self.kind == "longrope":
            return self.attention_factor or 1.0
        if self.kind != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def tables(self, positions: Tensor, lengths: Tensor | None = None) -> Tables:
        """What turns queries and keys at positions [B, S] of documents of so many tokens, [B, S] too; the lengths are
        read where `by_length` says so."""
        frequencies = self.frequencies(positions.device)
        if self.by_length:
            short, long = (torch.tensor(t, device=positions.device) for t in (self.short, self.long))
            assert lengths is not None
            frequencies = frequencies / torch.where((lengths > self.original_max)[..., None], long, short)
        angles = positions.float()[..., None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        magnitude = self.magnitude()
        if magnitude != 1.0:
            cos, sin = cos * magnitude, sin * magnitude
        return Tables(cos[:, :, None], sin[:, :, None], self.interleaved)


def rotate(x: Tensor, tables: Tables) -> Tensor:
    """Turns the first 2 x (last dim of the tables) channels of x [B, S, heads, head_dim]; fp32 inside."""
    cos, sin, interleaved = tables
    half = cos.shape[-1]
    rotated, rest = x[..., : 2 * half].float(), x[..., 2 * half :]
    if interleaved:
        first, second = rotated[..., ::2], rotated[..., 1::2]
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    else:
        first, second = rotated[..., :half], rotated[..., half:]
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    turned = turned.to(x.dtype)
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def rope(q: Tensor, k: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
    """Queries and keys [B, S, heads, head_dim], turned by their positions."""
    return rotate(q, tables), rotate(k, tables)
