"""Element formats of 8 bits and less: what fits, and how a number becomes one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Element:
    """A format of single numbers. `largest` is the largest finite one; what lies beyond it becomes it."""

    name: str
    dtype: torch.dtype
    largest: float

    def cast(self, x: Tensor) -> Tensor:
        """The nearest numbers of this format, ties to even; beyond `largest` saturates, infinities too, NaN stays.

        The clamp is explicit: torch's own cast saturates to one of the formats and overflows to infinity in the other.
        """
        return x.float().clamp(-self.largest, self.largest).to(self.dtype)


E4M3 = Element("e4m3", torch.float8_e4m3fn, 448.0)
"""4 bits of exponent, 3 of mantissa, no infinity (Micikevicius et al., 2022)."""

E5M2 = Element("e5m2", torch.float8_e5m2, 57344.0)
"""5 bits of exponent, 2 of mantissa: a wider range for gradients."""

ELEMENTS = {e.name: e for e in (E4M3, E5M2)}
