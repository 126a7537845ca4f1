"""Documents cut into chunks of their own, for the scans: no chunk holds tokens of two documents, so nothing is
masked."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass
class Chunks:
    """How [B, S] tokens lie in chunks.

    Plain rows: each of the B rows is cut alike, `document` is all 0. A packed row: B is 1, `index` [chunks, size]
    holds the
    token at each place (S where there is none), `document` the document of each chunk. `count` documents in all.
    """

    size: int
    length: int
    document: list[int]
    count: int
    index: Tensor | None = None
    places: Tensor | None = None

    @staticmethod
    def make(length: int, borders: list[int] | None, size: int, device: torch.device) -> Chunks:
        """Chunks of at most `size` tokens."""
        if borders is None:
            size = max(1, min(size, length))
            return Chunks(size, length, [0] * -(-length // size), 1)
        spans = list(pairwise(borders))
        size = max(1, min(size, max((b - a for a, b in spans), default=1)))
        document: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for n, (a, b) in enumerate(spans):
            for start in range(a, b, size):
                document.append(n)
                starts.append(start)
                ends.append(b)
        first = torch.tensor(starts, dtype=torch.int64, device=device)[:, None]
        index = first + torch.arange(size, device=device)
        real = index < torch.tensor(ends, dtype=torch.int64, device=device)[:, None]
        places = real.reshape(-1).nonzero().squeeze(1)
        return Chunks(size, length, document, len(spans), torch.where(real, index, length), places)

    def cut(self, x: Tensor) -> Tensor:
        """[B, S, ...] -> [B, chunks, size, ...], zeros where there is no token."""
        if self.index is None:
            tail = len(self.document) * self.size - self.length
            if tail:
                x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, tail))
            return x.unflatten(1, (len(self.document), self.size))
        padded = torch.cat((x[0], x.new_zeros(1, *x.shape[2:])))
        return padded[self.index][None]

    def join(self, x: Tensor) -> Tensor:
        """[B, chunks, size, ...] -> [B, S, ...]."""
        flat = x.flatten(1, 2)
        if self.index is None:
            return flat[:, : self.length]
        assert self.places is not None
        return flat[:, self.places]


class StatePassing(torch.autograd.Function):
    """state_after = decay · state_before + added, chunk after chunk, anew from `initial` where a document starts.

    added [B, chunks, ...state], decay [B, chunks, ...] (broadcast over the state's last dims), initial [documents, B,
    ...state] -> the state before each chunk, like `added`, and the last state of each document, like `initial`.
    """

    @staticmethod
    def forward(ctx, added, decay, initial, document):  # type: ignore[no-untyped-def]
        before = torch.empty_like(added)
        last = initial.clone()
        wide = decay.reshape(*decay.shape, *([1] * (added.dim() - decay.dim())))
        for n, d in enumerate(document):
            before[:, n] = last[d]
            last[d] = torch.addcmul(added[:, n], wide[:, n], last[d])
        ctx.save_for_backward(before, wide)
        ctx.document, ctx.decay_shape = document, decay.shape
        return before, last

    @staticmethod
    def backward(ctx, grad_before, grad_last):  # type: ignore[no-untyped-def]
        before, wide = ctx.saved_tensors
        grad = grad_last.clone()
        grad_added = torch.empty_like(before)
        for n in range(len(ctx.document) - 1, -1, -1):
            d = ctx.document[n]
            grad_added[:, n] = grad[d]
            grad[d] = torch.addcmul(grad_before[:, n], wide[:, n], grad[d])
        grad_decay = (grad_added * before).flatten(len(ctx.decay_shape)).sum(-1) if before.dim() > len(
            ctx.decay_shape
        ) else grad_added * before  # fmt: skip
        return grad_added, grad_decay, grad, None
