"""One axis of a mesh as a rank sees it, and the moves of values over it, with their gradients' moves back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

_reduce_scatter = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
"""torch renames it: 2.13 warns of the old name, 2.11 lacks the new one."""


@dataclass(frozen=True)
class Axis:
    """`size` ranks, of which this is the one at `rank`; `group` is None where there is but one."""

    name: str
    size: int = 1
    rank: int = 0
    group: ProcessGroup | None = None

    def tokens(self, length: int) -> Tokens:
        """The axis for values of one forward, with `length` tokens in a row."""
        return Tokens(self, length)

    @torch.no_grad()
    def gathered(self, x: Tensor) -> list[Tensor]:
        """What each rank has, in their order; all of one shape."""
        if self.size == 1:
            return [x]
        out = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.size)]
        distributed.all_gather(out, x.contiguous(), group=self.group)
        return out

    @torch.no_grad()
    def summed(self, x: Tensor) -> Tensor:
        """The sum of what the ranks have, without a gradient; x itself where there is one rank."""
        if self.size == 1:
            return x
        out = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(out, group=self.group)
        return out

    @torch.no_grad()
    def most(self, x: Tensor) -> Tensor:
        """The largest of what the ranks have, elementwise and without a gradient; x itself where there is one rank."""
        if self.size == 1:
            return x
        out = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(out, distributed.ReduceOp.MAX, group=self.group)
        return out

    @torch.no_grad()
    def scattered(self, x: Tensor) -> Tensor:
        """This rank's piece of the sum of what the ranks have: [n] -> [n / ranks]."""
        out = torch.empty(x.shape[0] // self.size, dtype=x.dtype, device=x.device)
        _reduce_scatter(out, x, group=self.group)
        return out

    @torch.no_grad()
    def exchanged(self, x: Tensor) -> Tensor:
        """What the ranks have for this one, of [ranks, ...] with what this one has for them."""
        out = torch.empty_like(x)
        distributed.all_to_all_single(out, x, group=self.group)
        return out

    def all_reduce(self, x: Tensor, back: str = "copy") -> Tensor:
        """The sum of what the ranks have."""
        return x if self.size == 1 else _move(x, self._sum, getattr(self, f"_{back}"))

    def copy(self, x: Tensor, back: str = "all_reduce") -> Tensor:
        """x as it is, whose gradient is the sum of the ranks' (or, `back="share"`, this rank's share of it)."""
        return x if self.size == 1 else _move(x, self._copy, self._sum if back == "all_reduce" else self._share)

    def _sum(self, x: Tensor) -> Tensor:
        return self.summed(x)

    _all_reduce = _sum

    @staticmethod
    def _copy(x: Tensor) -> Tensor:
        return x.view_as(x)

    def _share(self, x: Tensor) -> Tensor:
        return x / self.size


@dataclass(frozen=True)
class Tokens:
    """An axis for values [..., length, ...] of one forward, whose ranks have parts of dim 1, or of another.

    Where ranks do not divide the tokens, parts are filled up with copies of the last one: they pass through whatever
    acts on each token alone, and are left out, with their gradients, when parts come together.
    """

    axis: Axis
    length: int

    def all_gather(self, x: Tensor, dim: int = 1, back: str = "reduce_scatter") -> Tensor:
        """Parts of `dim` -> the whole value; gradients are summed, or cut again (`back="slice"`)."""
        whole = self._whole(x, dim)
        scatter = self._scatter if back == "reduce_scatter" else self._slice
        return _move(x, lambda t: self._gather(t, dim, whole), lambda g: scatter(self._padded(g, dim), dim))

    def reduce_scatter(self, x: Tensor, dim: int = 1) -> Tensor:
        """This rank's part of the sum of what the ranks have."""
        whole = x.shape[dim]
        return _move(x, lambda t: self._scatter(t, dim), lambda g: self._gather(g, dim, whole))

    def all_reduce(self, x: Tensor, back: str = "copy") -> Tensor:
        """As the axis's."""
        return self.axis.all_reduce(x, back)

    def copy(self, x: Tensor, back: str = "all_reduce") -> Tensor:
        """As the axis's."""
        return self.axis.copy(x, back)

    def slice(self, x: Tensor, dim: int = 1, back: str = "all_gather") -> Tensor:
        """This rank's part of a value that all have; gradients come together, or stay parts (`back="pad"`)."""
        whole = x.shape[dim]
        if back == "pad":
            return _move(x, lambda t: self._slice(t, dim), lambda g: self._pad(g, dim, whole))
        return _move(x, lambda t: self._slice(t, dim), lambda g: self._gather(g, dim, whole))

    def all_to_all(self, x: Tensor, dim: int, into: int) -> Tensor:
        """Parts of `dim` -> parts of `into`."""
        whole, other = self._whole(x, dim), x.shape[into]
        return _move(
            x,
            lambda t: self._exchange(t, dim, into, whole),
            lambda g: self._exchange(self._padded(g, dim), into, dim, other),
        )

    def _whole(self, x: Tensor, dim: int) -> int:
        return self.length if dim == 1 else x.shape[dim] * self.axis.size

    def _padded(self, g: Tensor, dim: int) -> Tensor:
        """A gradient with zeros behind, so that ranks divide it: what a value was filled up with has none."""
        lacking = -g.shape[dim] % self.axis.size
        if not lacking:
            return g
        return torch.cat((g, g.new_zeros(*g.shape[:dim], lacking, *g.shape[dim + 1 :])), dim)

    def _filled(self, x: Tensor, dim: int) -> Tensor:
        """x with copies of its last part behind, so that ranks divide it."""
        lacking = -x.shape[dim] % self.axis.size
        if not lacking:
            return x
        last = x.narrow(dim, x.shape[dim] - 1, 1)
        return torch.cat((x, last.expand(*x.shape[:dim], lacking, *x.shape[dim + 1 :])), dim)

    def _gather(self, x: Tensor, dim: int, whole: int) -> Tensor:
        return torch.cat(self.axis.gathered(x), dim).narrow(dim, 0, whole)

    def _scatter(self, x: Tensor, dim: int) -> Tensor:
        parts = self._filled(x, dim).chunk(self.axis.size, dim)
        return self.axis.scattered(torch.cat([p.reshape(-1) for p in parts])).view(parts[0].shape)

    def _slice(self, x: Tensor, dim: int) -> Tensor:
        return self._filled(x, dim).chunk(self.axis.size, dim)[self.axis.rank].contiguous()

    def _pad(self, x: Tensor, dim: int, whole: int) -> Tensor:
        part = x.shape[dim]
        start = self.axis.rank * part
        out = x.new_zeros(*x.shape[:dim], whole, *x.shape[dim + 1 :])
        real = max(0, min(part, whole - start))
        out.narrow(dim, min(start, whole), real).copy_(x.narrow(dim, 0, real))
        return out

    def _exchange(self, x: Tensor, dim: int, into: int, whole: int) -> Tensor:
        parts = self._filled(x, into).chunk(self.axis.size, into)
        sent = torch.cat([p.contiguous().reshape(1, *p.shape) for p in parts])
        return torch.cat(self.axis.exchanged(sent).unbind(), dim).narrow(dim, 0, whole)


def _move(x: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
    moved: Tensor = _Move.apply(x, forward, backward)
    return moved


class _Move(torch.autograd.Function):
    """A move, and another one for the gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.backward_move = backward
        return forward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.backward_move(grad), None, None
