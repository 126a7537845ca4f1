"""What kernels' launches ask of a device: one place, so that a target's answers can stand in for a device's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Target:
    """A kind of device: its compute capability (80, 90, 100) and how many multiprocessors it has."""

    capability: int
    processors: int


_assumed: list[Target] = []


@contextmanager
def assumed(target: Target) -> Iterator[None]:
    """Within this, tensors on the meta device count as that target's."""
    _assumed.append(target)
    try:
        yield
    finally:
        _assumed.pop()


def capability(device: torch.device) -> int:
    """80 for an A100, 90 for an H100; 0 for what is no CUDA device."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return 10 * major + minor
    return _assumed[-1].capability if _assumed and device.type == "meta" else 0


def processors(device: torch.device) -> int:
    """Multiprocessors; 0 for what is no CUDA device."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return _assumed[-1].processors if _assumed and device.type == "meta" else 0
