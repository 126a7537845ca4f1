"""Weight names as data: how a parameter of ours is made of tensors of a public file, and they of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError

MAX_TENSORS = 2_000_000
"""More than any published model has."""


@dataclass(frozen=True)
class Grouped:
    """Rows that the public file has group by group, each group with a few of every part in turn, and we part by part:
    `count` groups of `parts` rows. `Grouped(heads, (64, 64))` has 64 query rows and 64 gate rows for each head. `dim`
    is the dim of the rows: 1 where experts come first.
    """

    count: int
    parts: tuple[int, ...]
    dim: int = 0


@dataclass(frozen=True)
class Source:
    """One of our parameters: the tensors `names` of the public file joined along rows (dim 0), each `rows` high.

    With `stack`, `names` hold the parts of each expert in turn, `stack` experts in all, stacked on a new first dim.
    `squeeze` is the dim of size 1 that the file has and we have not; `shape` is the public shape where several are.
    Before they are joined, tensors have their last two dims swapped with `transpose`, and their rows put in our order
    as `grouped` says, which has an entry, or None, for each name, or one for all. With `inverse` the file has 1 over
    our numbers; with `ternary` it has -1, 0 and 1 in plain tensors of `rows`, where we have them at 2 bits.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...] = ()
    stack: int = 0
    squeeze: int | None = None
    shape: tuple[int, ...] = ()
    transpose: bool = False
    grouped: tuple[Grouped | None, ...] = ()
    inverse: bool = False
    ternary: bool = False

    def below(self, prefix: str) -> Source:
        """The same with names under a prefix."""
        return replace(self, names=tuple(prefix + n for n in self.names))

    @property
    def own_rows(self) -> tuple[int, ...]:
        """The rows of each part of our parameter."""
        return tuple(-(-r // 4) for r in self.rows) if self.ternary else self.rows

    def group(self, index: int) -> Grouped | None:
        """How the rows of name `index` are grouped."""
        return self.grouped[index % len(self.grouped)] if self.grouped else None


@dataclass(frozen=True)
class WeightMap:
    """Ours to theirs. `alternatives` are other layouts that a file may come in, by the same names of ours.

    `ignored` are tensors that a file may hold and that the model has no use for; `name.*` stands for all below a name.
    """

    sources: Mapping[str, Source]
    alternatives: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def layouts(self) -> list[dict[str, Source]]:
        """The ways a file may hold the parameters, that of the published files first."""
        count = max(map(len, self.alternatives.values()), default=0)
        others = [{name: s[k] for name, s in self.alternatives.items() if k < len(s)} for k in range(count)]
        return [dict(self.sources), *others]


def layered(count: int, ours: str, theirs: str, entries: Mapping[str, Source]) -> dict[str, Source]:
    """The entries of one layer repeated: `{i}` in both prefixes is the layer's index.

    Raises DiagnosticError (HYB503) for a config that asks for more tensors than any file holds.
    """
    tensors = count * sum(len(s.names) for s in entries.values())
    if tensors > MAX_TENSORS:
        label = f"the model would have {tensors} tensors in its layers"
        raise DiagnosticError([Diagnostic("HYB503", NO_SPAN, label, "fix the numbers of layers and experts")])
    out: dict[str, Source] = {}
    for i in range(count):
        for name, source in entries.items():
            out[ours.format(i=i) + name] = source.below(theirs.format(i=i))
    return out


def same(*pairs: tuple[str, str]) -> dict[str, Source]:
    """Parameters that only change their name."""
    return {ours: Source((theirs,)) for ours, theirs in pairs}


def joined(ours: str, parts: Iterable[tuple[str, int]], suffixes: Iterable[str] = ("weight",)) -> dict[str, Source]:
    """A projection that holds several of theirs, one above the other: (name, rows) from the top."""
    listed = list(parts)
    return {
        f"{ours}.{s}": Source(tuple(f"{n}.{s}" for n, _ in listed), tuple(r for _, r in listed)) for s in suffixes
    }  # fmt: skip
