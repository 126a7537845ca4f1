"""What causal-conv1d computes, and for which uses it has no kernel (as of 1.7)."""

from __future__ import annotations

from hybridc.ir.backends.base import Backend, Facts, Offer

TAPS = (2, 3, 4)
"""Taps that there are kernels for."""

ALIGNED = 8
"""Channels come in multiples of this where neighbours are side by side, as they are here."""


def _conv(facts: Facts) -> str:
    taps, channels = facts.get("taps"), facts.get("channels")
    if taps not in TAPS:
        return f"it has kernels for 2, 3 and 4 taps, not {taps}"
    if isinstance(channels, int) and channels % ALIGNED:
        return f"{channels} channels are no multiple of {ALIGNED}"
    return ""


CAUSAL_CONV1D = Backend(
    "causal_conv1d",
    "causal-conv1d",
    ("cuda:sm80", "cuda:sm90", "cuda:sm100"),
    {"causal_conv1d": Offer("causal_conv1d", "causal_conv1d.CausalConv1d", _conv)},
)
"""causal-conv1d from version 1.7."""
