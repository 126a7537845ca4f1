"""Types of IR values: symbolic dims, dtypes, tensor types. The only part of the compiler that the runtime may
import."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class DType(enum.Enum):
    """Element types by the names that the language uses; `bits` is the storage size."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT64 = "int64"

    @property
    def bits(self) -> int:
        return {"fp32": 32, "bf16": 16, "fp16": 16, "int64": 64}[self.value]

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def torch_name(self) -> str:
        """The attribute of `torch` that is this dtype."""
        return {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int64": "int64"}[self.value]


_TERM = re.compile(r"(?:(\d+)\*?)?([A-Z])|(\d+)")


@dataclass(frozen=True, slots=True)
class LinearDim:
    """A linear form in the symbols, `2*S + 1`: `terms` are (symbol, coefficient) sorted by symbol, coefficients not
    0."""

    terms: tuple[tuple[str, int], ...]
    const: int = 0

    def __str__(self) -> str:
        parts = [name if k == 1 else f"{k}*{name}" for name, k in self.terms]
        return "+".join([*parts, str(self.const)] if self.const else parts)


Dim = int | LinearDim


def symbol(name: str) -> LinearDim:
    """The dim that is one symbol."""
    return LinearDim(((name, 1),))


def add_dims(a: Dim, b: Dim) -> Dim:
    """a + b, an int again where the symbols cancel."""
    terms: dict[str, int] = {}
    for dim in (a, b):
        if isinstance(dim, LinearDim):
            for name, k in dim.terms:
                terms[name] = terms.get(name, 0) + k
    const = sum(d if isinstance(d, int) else d.const for d in (a, b))
    kept = tuple(sorted((name, k) for name, k in terms.items() if k))
    return LinearDim(kept, const) if kept else const


def parse_dim(text: str) -> Dim:
    """The dim that `str` prints as `text`. Raises ValueError for anything else."""
    total: Dim = 0
    for part in text.replace(" ", "").split("+"):
        match = _TERM.fullmatch(part)
        if not match:
            raise ValueError(f"`{text}` is not a dim")
        factor, name, const = match.groups()
        total = add_dims(total, int(const) if const else LinearDim(((name, int(factor or 1)),)))
    return total


def evaluate_dim(dim: Dim, sizes: dict[str, int]) -> int:
    """The number that `dim` is when its symbols have `sizes`."""
    if isinstance(dim, int):
        return dim
    return dim.const + sum(k * sizes[name] for name, k in dim.terms)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a value."""

    dims: tuple[Dim, ...]
    dtype: DType = DType.FP32

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.dims))}] {self.dtype.value}"

    @property
    def width(self) -> int:
        """The last dim, which is always a number for activations."""
        last = self.dims[-1]
        return last if isinstance(last, int) else 0

    def with_width(self, width: int) -> TensorType:
        return TensorType((*self.dims[:-1], width), self.dtype)


def tokens() -> TensorType:
    """The type of input ids: [B, S] int64."""
    return TensorType((symbol("B"), symbol("S")), DType.INT64)


def activation(width: int, dtype: DType = DType.FP32) -> TensorType:
    """The type of the residual stream: [B, S, width]."""
    return TensorType((symbol("B"), symbol("S"), width), dtype)
