"""Scales over whole tensors, where a rank has a part of a weight, of the tokens that meet it, or of a gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hybridc.runtime.parallel.axis import Axis
from hybridc.runtime.parallel.shards import Shard, split, whole

ONE = Axis("tp")
"""An axis of one rank."""


@dataclass(frozen=True)
class Across:
    """The ranks that have a weight [..., out, in] between them, and which part of it this one has.

    `dim` is that of the parts, counted from the back: -2 where a rank has rows, and so channels of the result; -1 where
    it has columns, and so channels of the input. Products in few bits ask for the largest number or the mean of a whole
    tensor, so that their scales are those of one rank.
    """

    axis: Axis = ONE
    shard: Shard | None = None
    dim: int = 0

    @classmethod
    def of(cls, weight: Tensor, shard: Shard, axis: Axis) -> Across:
        """That of a parameter, by its entry in a table of shards."""
        return cls(axis, shard, shard.dim - weight.dim() if isinstance(shard, split) else 0)

    @property
    def rows(self) -> bool:
        """Whether ranks have rows of the weight, and channels of the result."""
        return self.axis.size > 1 and self.dim == -2

    @property
    def columns(self) -> bool:
        """Whether ranks have columns of the weight, and channels of the input."""
        return self.axis.size > 1 and self.dim == -1

    @property
    def cut(self) -> bool:
        """Whether ranks have different parts of the weight."""
        return self.rows or self.columns

    def most(self, x: Tensor) -> Tensor:
        """The largest of what the ranks have, elementwise."""
        return self.axis.most(x)

    def sums(self, x: Tensor) -> Tensor:
        """The sum of what the ranks have; x where each has the whole weight."""
        return self.axis.summed(x) if self.cut else x

    def counted(self, weight: Tensor) -> Tensor | None:
        """bool [out, in]: what of it counts here, so that ranks count everything once and
        fillers never. None where each rank has the whole."""
        if not isinstance(self.shard, split) or not self.cut:
            return None
        pieces = []
        for part, copies, size in zip(
            self.shard.parts, self.shard.copies, self.shard.sizes(self.axis.size), strict=True
        ):
            index, again = divmod(self.axis.rank, copies)
            pieces.append(torch.arange(size, device=weight.device) < (0 if again else part - index * size))
        mine = torch.cat(pieces)
        return (mine[:, None] if self.rows else mine).expand(weight.shape[-2:])

    @torch.no_grad()
    def gradient(self, dy: Tensor) -> Tensor:
        """The gradient of a result [..., out], to be quantized: what several ranks have of it are parts of a sum, which
        the first of them takes, and the others have zeros there."""
        size, rank = self.axis.size, self.axis.rank
        sizes, copies = self._pieces(dy.shape[-1])
        if max(copies) == 1:
            return dy
        pieces, several = list(dy.split(sizes, -1)), [n for n, c in enumerate(copies) if c > 1]
        sent = []
        for n in several:
            each = dy.new_zeros(size // copies[n], *pieces[n].shape, dtype=torch.float32)
            each[rank // copies[n]] = pieces[n]
            sent.append(each)
        total = self.axis.summed(torch.cat([t.reshape(-1) for t in sent]))
        for n, t in zip(several, total.split([t.numel() for t in sent]), strict=True):
            index, again = divmod(rank, copies[n])
            mine = t.view(size // copies[n], *pieces[n].shape)[index].to(dy.dtype)
            pieces[n] = torch.zeros_like(mine) if again else mine
        return torch.cat(pieces, -1)

    def _pieces(self, width: int) -> tuple[list[int], list[int]]:
        """The pieces that a rank's channels of the result are in, and how many ranks have each."""
        if self.rows and isinstance(self.shard, split):
            return self.shard.sizes(self.axis.size), list(self.shard.copies)
        summed = isinstance(self.shard, whole) and self.shard.summed
        return [width], [self.axis.size if summed else 1]


ALONE = Across()
"""One rank."""

SPLIT_INPUT = "an input that is split over ranks is quantized by the projection: hand it a tensor"
"""What products say of an input that is quantized by scales of one rank."""


class Scaled:
    """A module with a weight whose products have scales over whole tensors. `place` tells it what of it a rank has."""

    across: Across = ALONE

    def placed(self, name: str, across: Across) -> None:
        """Takes which part of the parameter of this name there is."""
        if name == "weight":
            self.across = across
