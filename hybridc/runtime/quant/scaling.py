"""Scales: a matrix as numbers of few bits times one factor for each block of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hybridc.runtime.quant.elements import Element

WHOLE = 0
"""A block's side that is as long as the matrix's."""

_MOST = 2.0**126
"""The largest multiplier: its reciprocal, the factor, is then no subnormal number, which a device may take for 0."""


@dataclass(frozen=True)
class Scaling:
    """Blocks of `rows` x `columns` numbers with one factor each, a side of WHOLE as long as the matrix's. Factors are
    fp32, with `power` powers of two (of which E8M0 holds the exponent in 8 bits)."""

    rows: int
    columns: int
    power: bool = False

    def pad(self, x: Tensor) -> Tensor:
        """A matrix with zeros below and to the right, up to whole blocks. Zeros never raise a block's scale."""
        below = -x.shape[0] % self.rows if self.rows else 0
        right = -x.shape[1] % self.columns if self.columns else 0
        return F.pad(x, (0, right, 0, below)) if below or right else x

    def blocks(self, x: Tensor) -> Tensor:
        """A padded matrix [R, C] as [R / rows, rows, C / columns, columns]."""
        rows, columns = self.rows or max(1, x.shape[0]), self.columns or max(1, x.shape[1])
        return x.reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns)

    def count(self, shape: Sequence[int]) -> tuple[int, int]:
        """How many blocks a matrix of this shape has, down and across."""
        down, across = (-(-side // n) if n else 1 for side, n in zip(shape, (self.rows, self.columns), strict=True))
        return down, across

    def transposed(self) -> Scaling:
        """The same blocks in the transposed matrix."""
        return Scaling(self.columns, self.rows, self.power)


@dataclass(frozen=True)
class Quantized:
    """A matrix of `shape`: `values` [R, C] in an element format, padded with zeros to whole blocks, and `factors`
    [R / rows, C / columns] fp32, what each block's values are to be multiplied with."""

    values: Tensor
    factors: Tensor
    scaling: Scaling
    shape: tuple[int, int]

    def dequantize(self) -> Tensor:
        """The matrix [shape] in fp32."""
        return self.padded()[: self.shape[0], : self.shape[1]]

    def padded(self) -> Tensor:
        """The matrix in fp32 with its padding."""
        blocks = self.scaling.blocks(self.values).float()
        return (blocks * self.factors[:, None, :, None]).view(self.values.shape)

    def transpose(self) -> Quantized:
        """The transposed matrix, its values and factors the same."""
        return Quantized(self.values.t(), self.factors.t(), self.scaling.transposed(), (self.shape[1], self.shape[0]))


def largest(x: Tensor, scaling: Scaling) -> Tensor:
    """The largest magnitude in each block of a matrix, fp32. A NaN has no say, so that it spoils no other number."""
    padded = scaling.pad(x)
    if not padded.numel():
        sides = zip(padded.shape, (scaling.rows, scaling.columns), strict=True)
        return padded.new_zeros([side // n if n else 1 for side, n in sides], dtype=torch.float32)
    return scaling.blocks(padded).float().abs().nan_to_num(nan=0.0, posinf=torch.inf).amax((1, 3))


def multipliers(amax: Tensor, element: Element, *, power: bool) -> Tensor:
    """What numbers are multiplied with before they are cast, so that `amax` becomes the format's largest number.

    1 where amax is 0 or infinite: zeros stay zeros, infinities saturate, and so do numbers of their block that are too
    large. With `power` the factor amax / largest is rounded up to a power of two, 2^-126 or more, so that no finite
    number saturates (NVIDIA's MXFP8 recipe, Mishra et al., 2025).
    """
    usual = (amax > 0) & (amax < torch.inf)
    safe = amax.where(usual, torch.ones_like(amax))
    if power:
        # in fp64: a quotient that fp32 rounds down to a power of two would saturate its own amax
        mantissa, exponent = torch.frexp(safe.double() / element.largest)
        exponent = (exponent - (mantissa == 0.5).to(exponent.dtype)).clamp(min=-126)
        found = torch.ldexp(torch.ones_like(safe), -exponent)
    else:
        # a number over a tensor would be its reciprocal times the number, which is rounded twice
        found = (torch.full_like(safe, element.largest) / safe).clamp(max=_MOST)
    return found.where(usual, torch.ones_like(found))


def quantize(x: Tensor, element: Element, scaling: Scaling, amax: Tensor | None = None) -> Quantized:
    """A matrix [rows, columns] in an element format. `amax` [one for each block] sets the scales in place of the
    blocks' own largest numbers, as delayed scaling does."""
    padded = scaling.pad(x)
    if not padded.numel():
        return Quantized(padded.to(element.dtype), largest(x, scaling) + 1, scaling, (x.shape[0], x.shape[1]))
    found = multipliers(largest(padded, scaling) if amax is None else amax, element, power=scaling.power)
    values = element.cast(scaling.blocks(padded).float() * found[:, None, :, None]).view(padded.shape)
    return Quantized(values, 1.0 / found, scaling, (x.shape[0], x.shape[1]))


def scaled_mm(a: Quantized, b: Quantized) -> Tensor:
    """a bᵀ: a [M, K], b [N, K] -> [M, N] fp32, in the order of operations of hardware that scales products.

    Values are multiplied and summed in fp32, over a block of columns where there are several, and each such sum is then
    multiplied with both factors and added to the result. Powers of two change no bit before or after, so such matrices
    take one product.
    """
    if a.scaling.power and b.scaling.power:
        return (a.padded() @ b.padded().t())[: a.shape[0], : b.shape[0]]
    depth = a.scaling.columns or a.values.shape[1]
    if depth != (b.scaling.columns or b.values.shape[1]):
        raise ValueError(f"blocks of {a.scaling.columns} and {b.scaling.columns} columns cannot be multiplied")
    out = a.values.new_zeros(a.values.shape[0], b.values.shape[0], dtype=torch.float32)
    if not a.values.shape[1]:
        return out[: a.shape[0], : b.shape[0]]
    left, right = (_spread(m) for m in (a, b))
    for n, (x, y) in enumerate(zip(a.values.float().split(depth, 1), b.values.float().split(depth, 1), strict=True)):
        out.addcmul_(x @ y.t(), left[:, n, None] * right[None, :, n])
    return out[: a.shape[0], : b.shape[0]]


def _spread(m: Quantized) -> Tensor:
    """Factors for each row of the values, [R, C / columns]."""
    rows = m.values.shape[0]
    each = rows // max(1, m.factors.shape[0]) if m.scaling.rows != 1 else 1
    return m.factors.repeat_interleave(each, 0) if each != 1 else m.factors
