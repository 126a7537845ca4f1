"""When a parameter has changed: what is made of weights is kept until then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

T = TypeVar("T")
_steps = 0


def _stepped(*_: Any) -> None:
    global _steps
    _steps += 1


# torch's fused optimizers write parameters without counting it in `_version`
register_optimizer_step_post_hook(_stepped)


def version_of(t: Tensor) -> tuple[object, ...]:
    """The same as long as a tensor is neither written in place, nor replaced, nor moved, and no optimizer has made a
    step. A write through `t.data` is not seen, since torch does not count it."""
    return t.device, t.data_ptr(), t.dtype, t.shape, None if t.is_inference() else t._version, _steps


class Held(Generic[T]):
    """What is made of parameters, kept until these are written, replaced or moved; `made` counts how often it was."""

    def __init__(self) -> None:
        self.made = 0
        self._kept: dict[int, tuple[object, bool, T]] = {}

    def __call__(self, tensors: Sequence[Tensor], make: Callable[[], T], *, index: int = 0, turned: bool = True) -> T:
        """What `make` gives for these tensors. `index` tells parameters apart; what was made without the `turned`
        layout is made again where that is wanted."""
        state = tuple(version_of(t) for t in tensors)
        kept = self._kept.get(index)
        if kept is not None and kept[0] == state and (kept[1] or not turned):
            return kept[2]
        with torch.no_grad():
            made = make()
        self._kept[index] = (state, turned, made)
        self.made += 1
        return made
