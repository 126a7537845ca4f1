"""What a kernel is compiled as: the types of its arguments, its constants, and how it is launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """One form of a kernel.

    `signature` has the type of each argument in order, in Triton's words: `*bf16` for a pointer, `i32`, `fp32`; with
    `:16` behind it for one that is a multiple of 16 (a pointer: aligned to 16 bytes). `constants` are the values of the
    `tl.constexpr` arguments. `warps` and `stages` are those of the first configuration that a launch would try.
    `targets` are the compute capabilities that the kernel is for: 80 (A100), 90 (H100), 100 (B200).
    """

    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 2
    targets: tuple[int, ...] = (80, 90, 100)
    name: str = ""

    @property
    def options(self) -> Mapping[str, int]:
        """What a launch says to the compiler."""
        return {"num_warps": self.warps, "num_stages": self.stages}
