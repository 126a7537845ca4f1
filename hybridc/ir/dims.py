"""Symbolic dims: integers, or linear forms in the symbols B (batch) and S (sequence)."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
