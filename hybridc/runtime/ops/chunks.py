"""Documents cut into chunks of their own, for the scans: no chunk holds tokens of two, so nothing is masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK_COST = 32
"""What a chunk costs besides its tokens, in tokens (measured with Mamba-2's usual sizes)."""


@dataclass
class Chunks:
    """How [B, S] tokens lie in chunks.

    Plain rows: each of the B rows is cut alike and `document` is all 0. A packed row: B is 1, `document` names the
    document of each chunk, `index` [chunks, size] the token at each place (S where there is none), and `places` the
    place of each token. `count` documents in all; one that has no token has no chunk.
    """

    size: int
    length: int
    document: list[int]
    count: int
    index: Tensor | None = None
    places: Tensor | None = None

    @staticmethod
    def make(length: int, borders: list[int] | None, longest: int, device: torch.device) -> Chunks:
        """Chunks of at most `longest` tokens, of the size that leaves the least to do."""
        if borders is None:
            number = -(-length // longest)
            return Chunks(-(-length // max(1, number)), length, [0] * number, 1)
        spans = list(pairwise(borders))
        size = _best_size([b - a for a, b in spans], longest)
        document: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for n, (a, b) in enumerate(spans):
            for start in range(a, b, size):
                document.append(n)
                starts.append(start)
                ends.append(b)
        index = torch.tensor(starts, dtype=torch.int64, device=device)[:, None] + torch.arange(size, device=device)
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
        return flat[:, : self.length] if self.places is None else flat[:, self.places]


def _best_size(lengths: Sequence[int], longest: int) -> int:
    """The chunk size, `longest` at most, under which documents of these lengths cost least."""
    most = max(1, min(longest, max(lengths, default=1)))

    def cost(size: int) -> int:
        return sum(-(-n // size) for n in lengths) * (size + CHUNK_COST)

    return min((*range(8, most, 8), most), key=cost)


def running_sums(steps: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Running sums over `dim`, and what rounding took from them: so the differences of near ones stay exact. The sums
    alone carry the gradient."""
    exact = steps.double().cumsum(dim)
    sums = exact.to(steps.dtype)
    return sums, (exact - sums.double()).to(steps.dtype).detach()


def pass_states(added: Tensor, decay: Tensor, states: Tensor, order: Sequence[tuple[int, int]]) -> Tensor:
    """state = decay · state + added for the chunks and documents (n, document) in `order`.

    added [B, chunks, ...state], decay broadcastable to it, states [documents, B, ...state], which are replaced -> the
    states that each chunk met, like added.
    """
    met = torch.empty_like(added, memory_format=torch.contiguous_format)
    for n, document in order:
        met[:, n] = states[document]
        torch.addcmul(added[:, n], decay[:, n], met[:, n], out=states[document])
    return met


class StatePassing(torch.autograd.Function):
    """state_after = decay · state_before + added, chunk after chunk, anew from `initial` where a document starts.

    added [B, chunks, ...state], decay [B, chunks, ...] (a prefix of added's dims), initial [documents, B, ...state] ->
    the state before each chunk, like `added`, and the last state of each document, like `initial`.
    """

    @staticmethod
    def forward(ctx, added, decay, initial, document):  # type: ignore[no-untyped-def]
        wide = decay.reshape(*decay.shape, *[1] * (added.dim() - decay.dim()))
        last = initial.clone(memory_format=torch.contiguous_format)
        before = pass_states(added, wide, last, list(enumerate(document)))
        ctx.save_for_backward(before, wide)
        ctx.document, ctx.decay_shape = document, decay.shape
        return before, last

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_before, grad_last):  # type: ignore[no-untyped-def]
        before, wide = ctx.saved_tensors
        grad_initial = grad_last.clone(memory_format=torch.contiguous_format)
        grad_added = pass_states(grad_before, wide, grad_initial, list(enumerate(ctx.document))[::-1])
        grad_decay = (grad_added * before).sum_to_size(wide.shape).view(ctx.decay_shape)
        return grad_added, grad_decay, grad_initial, None
