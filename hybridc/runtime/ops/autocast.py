"""What torch.autocast means to ops: the dtype of products, and those whose insides stay in the dtypes they choose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def result_dtype(x: Tensor) -> torch.dtype:
    """A product's with x: autocast's where that is on for x's device, else x's own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def without_autocast(function: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Tensor, P], R]:
    """Decorator: runs the function with autocast off on its first argument's device.

    Autocast takes every product of fp32 matrices to bf16 or fp16. A state that is added to for as long as its sequence
    grows, and a choice between near scores, are what that breaks.
    """

    @functools.wraps(function)
    def run(x: Tensor, *args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.is_autocast_enabled(x.device.type):
            return function(x, *args, **kwargs)
        with torch.autocast(x.device.type, enabled=False):
            return function(x, *args, **kwargs)

    return run
