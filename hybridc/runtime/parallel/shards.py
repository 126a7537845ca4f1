"""Which part of a parameter a tensor-parallel rank has: the entries of the tables that emitted classes have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class whole:
    """Every rank has all of it. `summed`: each rank's gradient is a part of a sum."""

    summed: bool = True

    def shape(self, local: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """The whole parameter's shape."""
        return local

    def take(self, full: Tensor, rank: int, ranks: int) -> Tensor:
        """A rank's part."""
        return full

    def join(self, parts: list[Tensor]) -> Tensor:
        """The whole, of the parts of all ranks."""
        return parts[0]

    def owned(self, part: Tensor, rank: int, ranks: int) -> list[Tensor]:
        """What of a part is counted on this rank, so that ranks count everything once."""
        return [part] if rank == 0 else []

    def repeated(self, part: Tensor, rank: int, ranks: int) -> list[tuple[Tensor, int, int]]:
        """The pieces of a part, or of its gradient, that other ranks have too, each with which of how many it is."""
        return [(part, 0, 1)] if self.summed else []


@dataclass(frozen=True)
class first(whole):
    """The first rank alone has it: what is added once to a sum over ranks. The others have None."""

    summed: bool = False


class split:
    """A piece of each of the `parts` that are fused along `dim`, one after the other. `copies` neighbouring ranks have
    the same piece of a part. A part that ranks do not divide is filled up with zeros."""

    def __init__(self, *parts: int, dim: int = 0, copies: tuple[int, ...] = ()) -> None:
        self.parts, self.dim, self.copies = parts, dim, copies or (1,) * len(parts)

    @property
    def copied(self) -> bool:
        """Whether ranks have copies of each other's pieces."""
        return max(self.copies) > 1

    def sizes(self, ranks: int) -> list[int]:
        """The sizes of a rank's pieces."""
        return [-(-n * c // ranks) for n, c in zip(self.parts, self.copies, strict=True)]

    def shape(self, local: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """The whole parameter's shape."""
        return (*local[: self.dim], sum(self.parts), *local[self.dim + 1 :])

    def take(self, full: Tensor, rank: int, ranks: int) -> Tensor:
        """A rank's part."""
        return torch.cat([p for _, p in self._pieces(full, rank, ranks)], self.dim)

    def _pieces(self, full: Tensor, rank: int, ranks: int) -> list[tuple[int, Tensor]]:
        out = []
        parts = full.split(self.parts, self.dim)
        for part, copies, size in zip(parts, self.copies, self.sizes(ranks), strict=True):
            index = rank // copies
            start = min(index * size, part.shape[self.dim])
            piece = part.narrow(self.dim, start, min(size, part.shape[self.dim] - start))
            lacking = size - piece.shape[self.dim]
            if lacking:
                shape = list(piece.shape)
                shape[self.dim] = lacking
                piece = torch.cat((piece, piece.new_zeros(shape)), self.dim)
            out.append((index, piece))
        return out

    def join(self, parts: list[Tensor]) -> Tensor:
        """The whole, of the parts of all ranks."""
        sizes = self.sizes(len(parts))
        pieces = [p.split(sizes, self.dim) for p in parts]
        joined = []
        for n, (size, copies) in enumerate(zip(self.parts, self.copies, strict=True)):
            joined.append(torch.cat([p[n] for p in pieces[::copies]], self.dim).narrow(self.dim, 0, size))
        return torch.cat(joined, self.dim)

    def owned(self, part: Tensor, rank: int, ranks: int) -> list[Tensor]:
        """What of a part is counted on this rank; fillers, whose gradients are 0, are."""
        if not self.copied:
            return [part]
        pieces = part.split(self.sizes(ranks), self.dim)
        return [p for p, copies in zip(pieces, self.copies, strict=True) if rank % copies == 0]

    def repeated(self, part: Tensor, rank: int, ranks: int) -> list[tuple[Tensor, int, int]]:
        """The pieces of a part that other ranks have too, each with which of how many it is."""
        if not self.copied:
            return []
        pieces = part.split(self.sizes(ranks), self.dim)
        pairs = zip(pieces, self.copies, strict=True)
        return [(p, rank // copies, ranks // copies) for p, copies in pairs if copies > 1]


Shard = whole | split
