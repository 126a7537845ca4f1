"""When a parameter has changed: what is made of weights is kept until then."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

T = TypeVar("T")
_writes = 0


def written(*_: Any) -> None:
    """Says that parameters were written in a way that torch does not count for those that hold what is made of them."""
    global _writes
    _writes += 1


# torch's fused optimizers write parameters without counting it in `_version`
register_optimizer_step_post_hook(written)


def version_of(t: Tensor) -> tuple[object, ...]:
    """The same as long as a tensor is neither written in place, nor replaced, nor moved, and no optimizer has made a
    step. A write through `t.data` is not seen, since torch does not count it."""
    return t.data_ptr(), *_content(t)


def _content(t: Tensor) -> tuple[object, ...]:
    """What a version says without addresses, which are others on each rank."""
    return t.device, t.dtype, t.shape, None if t.is_inference() else t._version, _writes


def _origin(t: Tensor) -> Tensor:
    """The parameter that a tensor is, or is a view of."""
    return t if t._base is None else t._base


class Held(Generic[T]):
    """What is made of parameters, kept until these are written, replaced or moved; `made` counts how often it was."""

    def __init__(self) -> None:
        self.made = 0
        self._kept: dict[int, tuple[Sequence[object], list[weakref.ref[Tensor]], bool, T]] = {}

    def __call__(
        self,
        tensors: Sequence[Tensor],
        make: Callable[[], T],
        *,
        index: int = 0,
        turned: bool = True,
        steady: bool = False,
    ) -> T:
        """What `make` gives for these tensors. `index` tells parameters apart; what was made without the `turned`
        layout is made again where that is wanted.

        `steady`: go by the parameters themselves and not by their addresses, which change by chance where memory is
        freed and taken again, as that of sharded parameters is. For what ranks make with each other, which have to
        agree on when, and for what leaves a trace when it is made.
        """
        state = [_content(t) if steady else version_of(t) for t in tensors]
        kept = self._kept.get(index)
        if kept is not None and kept[0] == state and (kept[2] or not turned):
            origins = zip(kept[1], tensors, strict=True)
            if not steady or all(ref() is _origin(t) for ref, t in origins):
                return kept[3]
        with torch.no_grad():
            made = make()
        self._kept[index] = (state, [weakref.ref(_origin(t)) for t in tensors], turned, made)
        self.made += 1
        return made
