"""Gradients in flight: buckets that are summed over data-parallel ranks, and sums over tensor-parallel ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, distributed

from hybridc.runtime.parallel.axis import Axis
from hybridc.runtime.parallel.parts import is_sharded, local
from hybridc.runtime.parallel.shards import Shard


class Bucket:
    """Parameters of one dtype and device whose gradients are sent together.

    A gradient that a rank lacks counts as zeros there; one that all ranks lack stays None, as it does serially.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.left = len(self.parameters)
        """How many of them have to come before it is sent."""
        self.sent: Tensor | None = None
        self._work: distributed.Work | None = None
        self._lacking: list[int] = []

    @torch.no_grad()
    def send(self, axis: Axis) -> None:
        """Starts the sum. From here on the gradients are views of what is being summed."""
        grads = [p.grad for p in self.parameters]
        self._lacking = [n for n, g in enumerate(grads) if g is None]
        pieces = [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, grads, strict=True)]
        there = pieces[0].new_tensor([0.0 if g is None else 1.0 for g in grads])
        self.sent = torch.cat([*(piece.reshape(-1) for piece in pieces), there])
        for n, view in enumerate(self._views()):
            if n not in self._lacking:
                self.parameters[n].grad = view
        self._work = distributed.all_reduce(self.sent, group=axis.group, async_op=True)

    def wait(self) -> None:
        """Waits for the sum, and gives gradients to parameters that had none here."""
        assert self._work is not None and self.sent is not None
        self._work.wait()
        if self._lacking:
            there = self.sent[-len(self.parameters) :].tolist()
            views = list(self._views())
            for n in self._lacking:
                self.parameters[n].grad = views[n] if there[n] else None
        self.reset()

    def reset(self) -> None:
        """Makes it ready for the next sum."""
        self.left, self.sent, self._work, self._lacking = len(self.parameters), None, None, []

    def _views(self) -> Iterator[Tensor]:
        assert self.sent is not None
        start = 0
        for p in self.parameters:
            yield self.sent[start : start + p.numel()].view(p.shape)
            start += p.numel()


def buckets_of(parameters: Sequence[Tensor], size: int) -> list[Bucket]:
    """Buckets of up to `size` bytes, in the order in which backward fills them: the last parameters come first."""
    made: list[Bucket] = []
    filling: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for p in reversed(parameters):
        key = p.dtype, p.device
        waiting = filling.setdefault(key, [])
        waiting.append(p)
        if sum(q.numel() * q.element_size() for q in waiting) >= size:
            made.append(Bucket(filling.pop(key)))
    return made + [Bucket(waiting) for waiting in filling.values()]


@torch.no_grad()
def sum_pieces(parameters: Sequence[tuple[Tensor, Shard]], axis: Axis) -> None:
    """Sums the gradients of pieces that several ranks of an axis have, in place."""
    kinds: dict[tuple[torch.dtype, torch.device], list[tuple[Tensor, Shard]]] = {}
    for p, shard in parameters:
        kinds.setdefault((p.dtype, p.device), []).append((p, shard))
    for kind in kinds.values():
        pieces = []
        for p, shard in kind:
            # a rank that lacks a gradient still takes part
            grad = torch.zeros_like(local(p)) if p.grad is None else local(p.grad)
            pieces += shard.repeated(grad, axis.rank, axis.size)
        slots = [piece.new_zeros(many, piece.numel()) for piece, _, many in pieces]
        for slot, (piece, index, _) in zip(slots, pieces, strict=True):
            slot[index] = piece.reshape(-1)
        sizes = [slot.numel() for slot in slots]
        flat = torch.cat([slot.reshape(-1) for slot in slots])
        distributed.all_reduce(flat, group=axis.group)
        for part, (piece, index, many) in zip(flat.split(sizes), pieces, strict=True):
            piece.copy_(part.view(many, -1)[index].view(piece.shape))


@torch.no_grad()
def keep_once(p: Tensor, shard: Shard | None, dp: Axis, tp: Axis) -> None:
    """Leaves of a gradient that has been summed already what sums over ranks would otherwise count again: on each rank
    only what no rank before it has."""
    if p.grad is None:
        return
    if dp.rank and not is_sharded(p):
        p.grad = None
        return
    if shard is not None:
        for piece, _, many in shard.repeated(local(p.grad), tp.rank, tp.size):
            if tp.rank % (tp.size // many):
                piece.zero_()
