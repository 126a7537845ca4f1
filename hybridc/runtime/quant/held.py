"""Weights in FP8: how they are stored."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hybridc.runtime.quant.elements import ELEMENTS
from hybridc.runtime.quant.scaling import Quantized, Scaling

FORMATS = frozenset(e.dtype for e in ELEMENTS.values())


class EncodedWeight(NamedTuple):
    """A weight as it is stored: `data` [out, in] in FP8 and `scale` fp32, one for each block, [down, across].

    `turned` [in, out] and `turned_scale` are the same weight with blocks along the other dimension, for the product of
    the input's gradient; None where that takes the same numbers transposed.
    """

    data: Tensor
    scale: Tensor
    turned: Tensor | None = None
    turned_scale: Tensor | None = None

    @classmethod
    def of(cls, forward: Quantized, backward: Quantized | None) -> EncodedWeight:
        """Without the padding to whole blocks."""
        return cls(*_cropped(forward), *(_cropped(backward) if backward is not None else (None, None)))

    def tensors(self) -> list[Tensor]:
        """Those that are there."""
        return [t for t in self if t is not None]


def restored(data: Tensor, scale: Tensor, scaling: Scaling) -> Quantized:
    """Stored data and scales as a quantized matrix, filled up to whole blocks."""
    padded = scaling.pad(data.detach().view(torch.uint8)).view(data.dtype)
    return Quantized(padded, scale, scaling, (data.shape[0], data.shape[1]))


def gradient_dtype(weight: Tensor) -> torch.dtype:
    """A weight's own, and fp32 for one that is stored in FP8."""
    return torch.float32 if weight.dtype in FORMATS else weight.dtype


def _cropped(m: Quantized) -> tuple[Tensor, Tensor]:
    return m.values[: m.shape[0], : m.shape[1]], m.factors
