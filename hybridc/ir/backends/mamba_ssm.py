"""What mamba-ssm computes, and for which uses it has no kernel (as of 2.3.2)."""

from __future__ import annotations

from hybridc.ir.backends.base import Backend, Facts, Offer

LARGEST_STATE = 256
"""State of a channel that the CUDA kernel of Mamba's scan has registers for."""

NORM_BYTES = 65536
"""Bytes of the row, or the group of channels, that the norm's kernel holds at once."""


def _ssd(facts: Facts) -> str:
    return "its products of fp32 numbers are TF32's" if facts.get("dtype") == "fp32" else ""


def _selective_scan(facts: Facts) -> str:
    state = facts.get("state")
    if isinstance(state, int) and state > LARGEST_STATE:
        return f"its scan takes a state of at most {LARGEST_STATE} a channel, not {state}"
    return ""


def _gated_rmsnorm(facts: Facts) -> str:
    act, width, groups = facts.get("act", "silu"), facts.get("width"), facts.get("groups", 1)
    if act != "silu":
        return f"its norm has no gate by {act}"
    limit = NORM_BYTES // (4 if facts.get("dtype") == "fp32" else 2)
    if isinstance(width, int) and isinstance(groups, int) and width // groups > limit:
        return f"its norm takes at most {limit} channels of {facts.get('dtype')}, not {width // groups}"
    return ""


MAMBA_SSM = Backend(
    "mamba_ssm",
    "mamba-ssm",
    ("cuda:sm80", "cuda:sm90", "cuda:sm100"),
    {
        "ssd": Offer("mamba_ssm", "mamba_ssm.ssd", _ssd),
        "selective_scan": Offer("mamba_ssm", "mamba_ssm.selective_scan", _selective_scan),
        "gated_rmsnorm": Offer("mamba_ssm", "mamba_ssm.GatedRMSNorm", _gated_rmsnorm),
    },
)
"""mamba-ssm from version 2.3."""
