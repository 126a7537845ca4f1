"""When a parameter has changed: what is made of weights is kept until then."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

_steps = 0


def _stepped(*_: Any) -> None:
    global _steps
    _steps += 1


# torch's fused optimizers write parameters without counting it in `_version`
register_optimizer_step_post_hook(_stepped)


def version_of(t: Tensor) -> tuple[object, ...]:
    """The same as long as a tensor is neither written in place, nor replaced, nor moved, and no optimizer has made a
    step. A write through `t.data` is not seen, since torch does not count it."""
    return t.data_ptr(), t.dtype, t.shape, None if t.is_inference() else t._version, _steps
