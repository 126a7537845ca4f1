"""Types of IR values: symbolic dims, dtypes, tensor types. The only part of the compiler that the runtime may
import."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace

from hybridc.ir.dims import Dim, parse_dim, symbol
from hybridc.ir.places import AXES, REPLICATED, Layout, Place, split


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


INTEGERS = frozenset({DType.INT64})
"""Element types that have no gradient."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a whole value, and how mesh axes lay it out."""

    dims: tuple[Dim, ...]
    dtype: DType = DType.FP32
    layout: Layout = ()

    def __str__(self) -> str:
        """`[B/dp, S/tp, 64] fp32`, `[B, S, 64] fp32 partial(tp)`; `~` behind an axis says zigzag."""
        cuts = ["".join(f"/{a}{'~' * p.zigzag}" for a, p in self.layout if p.kind == "split" and p.dim == n)
                for n in range(len(self.dims))]  # fmt: skip
        dims = ", ".join(f"{d}{cut}" for d, cut in zip(self.dims, cuts, strict=True))
        others = "".join(f" {p.kind}({a})" for a, p in self.layout if p.kind != "split")
        return f"[{dims}] {self.dtype.value}{others}"

    def place(self, axis: str) -> Place:
        """What an axis does to the value."""
        return next((p for a, p in self.layout if a == axis), REPLICATED)

    def at(self, axis: str, place: Place) -> TensorType:
        """The same value with another place on an axis."""
        others = [(a, p) for a, p in self.layout if a != axis]
        new = [] if place == REPLICATED else [(axis, place)]
        order = {a: n for n, a in enumerate(AXES)}
        return replace(self, layout=tuple(sorted(others + new, key=lambda pair: order[pair[0]])))

    @property
    def width(self) -> int:
        """The last dim, which is always a number for activations."""
        last = self.dims[-1]
        return last if isinstance(last, int) else 0

    def with_width(self, width: int) -> TensorType:
        return replace(self, dims=(*self.dims[:-1], width))


_LAID = re.compile(r"\[(.*)\] (\w+)((?: \w+\(\w+\))*)")


def parse_tensor(text: str) -> TensorType:
    """The type that `str` prints as `text`. Raises ValueError for anything else."""
    match = _LAID.fullmatch(text.strip())
    if not match:
        raise ValueError(f"`{text}` is not a type")
    made = TensorType((), DType(match[2]))
    dims: list[Dim] = []
    for n, part in enumerate(match[1].split(",")):
        dim, *axes = part.strip().split("/")
        dims.append(parse_dim(dim))
        for axis in axes:
            made = made.at(axis.rstrip("~"), split(n, zigzag=axis.endswith("~")))
    for kind, axis in re.findall(r"(\w+)\((\w+)\)", match[3]):
        made = made.at(axis, Place(kind))
    return replace(made, dims=tuple(dims))


def tokens() -> TensorType:
    """The type of input ids: [B, S] int64."""
    return TensorType((symbol("B"), symbol("S")), DType.INT64)


def activation(width: int, dtype: DType = DType.FP32) -> TensorType:
    """The type of the residual stream: [B, S, width]."""
    return TensorType((symbol("B"), symbol("S"), width), dtype)
