"""What flash-linear-attention computes, and for which uses it has no kernel (as of 0.6)."""

from __future__ import annotations

from hybridc.ir.backends.base import Backend, Facts, Offer

WIDEST_KEY = 256
"""Channels of a key that the kernels of the delta rule hold."""


def _delta_rule(facts: Facts) -> str:
    key, value = facts.get("key_dim"), facts.get("value_dim")
    if facts.get("dtype") == "fp32":
        return "its products of fp32 numbers are TF32's"
    if isinstance(key, int) and key > WIDEST_KEY:
        return f"its kernels take keys of at most {WIDEST_KEY} channels, not {key}"
    odd = [n for n in (key, value) if isinstance(n, int) and n % 2]
    return f"it refuses heads of an odd number of channels, such as {odd[0]}" if odd else ""


def _lightning(facts: Facts) -> str:
    width = facts.get("head_dim")
    if facts.get("dtype") == "fp32":
        return "its products of fp32 numbers are TF32's"
    if isinstance(width, int) and width % 2:
        return f"it refuses heads of an odd number of channels, such as {width}"
    return ""


FLA = Backend(
    "fla",
    "fla-core",
    ("cuda:sm80", "cuda:sm90", "cuda:sm100"),
    {
        "gated_delta_rule": Offer("fla", "fla.gated_delta_rule", _delta_rule),
        "lightning_attention": Offer("fla", "fla.lightning_attention", _lightning),
        "rg_lru": Offer("fla", "fla.rg_lru"),
    },
)
"""flash-linear-attention (fla-core) from version 0.6."""
