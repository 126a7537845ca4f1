"""What flash-attn computes, and for which uses it has no kernel (as of 2.8)."""

from __future__ import annotations

from hybridc.ir.backends.base import Backend, Facts, Offer

WIDEST = 256
"""Channels of a head that there are kernels for."""


def _attention(facts: Facts) -> str:
    width, value = facts.get("head_dim"), facts.get("value_dim")
    if facts.get("dtype") not in ("bf16", "fp16"):
        return f"its kernels are for bf16 and fp16, not {facts.get('dtype')}"
    if isinstance(width, int) and width > WIDEST:
        return f"heads of {width} channels are wider than {WIDEST}"
    if value and value != width:
        return f"its values are as wide as its keys, not {value} and {width}"
    if facts.get("sinks"):
        return "its softmax has no sinks"
    if facts.get("softcap") and facts.get("dropout"):
        return "it has no dropout with a softcap"
    return ""


FLASH_ATTN = Backend(
    "flash_attn",
    "flash-attn",
    ("cuda:sm80", "cuda:sm90", "cuda:sm100"),
    {"attention": Offer("flash_attn", "flash_attn.attention", _attention)},
)
"""flash-attn from version 2.8."""
