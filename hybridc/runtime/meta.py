"""Modules without memory: their parameters have shapes and dtypes and no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _Unfilled(TorchFunctionMode):
    """Leaves out what fills new parameters. Without memory there is nothing to fill, and torch would load its whole
    compiler to find that out (140 MB and a second)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("normal_", "uniform_", "zero_", "fill_", "kaiming_uniform_"):
            return kwargs["tensor"] if not args else args[0]
        return func(*args, **(kwargs or {}))


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    """What `make` makes, on the meta device."""
    with torch.device("meta"), _Unfilled():
        return make()
