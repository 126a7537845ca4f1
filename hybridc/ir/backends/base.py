"""What computes the parts that ops are made of on a target: torch, kernels of our own, libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Facts = Mapping[str, object]
"""What a use of a part says of itself: sizes and options by name, `dtype` (fp32, bf16, fp16) and `capability` (80, 90,
100; 0 on the CPU) among them."""


def always(facts: Facts) -> str:
    """No reason against any use."""
    return ""


@dataclass(frozen=True, slots=True)
class Offer:
    """How a backend computes a part: emitted code imports `module`, and calls `text`, such as `gpu.ssd`.

    `unfit` says why a use with these facts cannot be served, "" where it can. `plain` marks what is written without
    regard to speed on the target: choosing it is worth a warning.
    """

    module: str
    text: str
    unfit: Callable[[Facts], str] = always
    plain: bool = False


@dataclass(frozen=True)
class Backend:
    """A library, by the name that `--with` has for it, what pip installs for it ("" for what is always there), the
    targets that it is for, and its offers by part."""

    name: str
    package: str
    targets: tuple[str, ...]
    offers: Mapping[str, Offer] = field(default_factory=dict)
