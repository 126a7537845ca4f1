"""Rotary settings of a GGUF file as those of a public config.

Two of the file's ways are of its own: a scaling without a type is linear, and Llama 3's scaling is no setting but a
tensor, `rope_freqs.weight`, of divisors of the frequencies. From the divisors the settings are found again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridc.frontend.hf.config import Config

_ORIGINAL = 8192
"""Context that Llama 3 was trained at. The divisors depend on its ratio to the two factors only, so one is free."""

_CLOSE = 1e-4
"""Relative difference of divisors that are the same: they are fp32 in the file."""


def rope_settings(c: Config, arch: str, head_dim: int, divisors: Sequence[float] | None) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling` of a public config; `divisors` are the file's rope_freqs, head_dim / 2."""
    at = f"{arch}.rope."
    theta = short(c.number(at + "freq_base", 10000.0))
    for name, default, allowed in (
        ("scaling.attn_factor", 1.0, (1.0,)),
        ("scaling.yarn_ext_factor", 1.0, (1.0, -1.0)),
        ("scaling.yarn_attn_factor", 1.0, (1.0, -1.0)),
        ("scaling.yarn_log_multiplier", 0.0, (0.0,)),
    ):
        c.refuse_unless(at + name, default, allowed, "its effect is not modelled")
    c.ignore(at + "scaling.finetuned")  # how the model came about
    fast, slow = (
        short(c.number(at + "scaling.yarn_beta_fast", 32.0)),
        short(c.number(at + "scaling.yarn_beta_slow", 1.0)),
    )
    factor = short(c.number(at + "scaling.factor", c.number(at + "scale_linear", 0.0)))
    original = c.take(at + "scaling.original_context_length", None, int, low=1, high=1 << 31)
    kind = c.take(at + "scaling.type", "linear", str)
    scaling: dict[str, Any] | None = None
    if divisors is not None:
        scaling = _llama3(c, head_dim, theta, divisors, original)
        if kind not in ("none", "linear") or factor not in (0.0, 1.0):
            c.refuse("rope_freqs.weight", kind, f"`{at}scaling` says another scaling than the tensor")
    elif kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        pass
    elif kind == "linear":
        scaling = {"rope_type": "linear", "factor": factor}
    elif kind == "yarn":
        scaling = {"rope_type": "yarn", "factor": factor or 1.0, "beta_fast": fast, "beta_slow": slow}
        if original is None:
            c.refuse(at + "scaling.original_context_length", None, "YaRN needs the context before scaling")
        else:
            scaling["original_max_position_embeddings"] = original
    else:
        c.refuse(at + "scaling.type", kind, "use a file with none, linear or yarn")
    return {"rope_theta": theta, "rope_scaling": scaling}


def _llama3(
    c: Config, head_dim: int, theta: float, divisors: Sequence[float], original: int | None
) -> dict[str, Any] | None:
    """The settings whose divisors are these; None, and reported, where there are none.

    Between the two borders a divisor d has (1 - 1/factor) s = 1/d - 1/factor with s linear in the frequency (Llama 3.1;
    transformers' modeling_rope_utils), so that two such frequencies tell the borders.
    """
    if len(divisors) != head_dim // 2:
        c.refuse("rope_freqs.weight", len(divisors), f"a head has {head_dim // 2} frequencies")
        return None
    if not all(math.isfinite(d) and d >= 1 - _CLOSE for d in divisors):
        c.refuse("rope_freqs.weight", list(divisors), "divisors of frequencies are 1 or more")
        return None
    factor, base = short(max(divisors)), original or _ORIGINAL
    if factor <= 1 + _CLOSE:
        return None
    turns = [base * theta ** (-2 * i / head_dim) / (2 * math.pi) for i in range(head_dim // 2)]
    guesses = [(1.0, 4.0)]
    between = [(t, (1 / d - 1 / factor) / (1 - 1 / factor)) for t, d in zip(turns, divisors, strict=True)]
    between = [(t, s) for t, s in between if _CLOSE < s < 1 - _CLOSE]
    if len(between) >= 2:
        (t1, s1), (t0, s0) = between[0], between[-1]
        span = (t1 - t0) / (s1 - s0) if s1 != s0 else math.inf
        low = t0 - s0 * span
        guesses.append((round(low, 3), round(low + span, 3)))
    for low, high in guesses:
        if 0 < low < high < math.inf and _fits(turns, divisors, factor, low, high):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": base,
            }
    c.refuse("rope_freqs.weight", [round(d, 4) for d in divisors], "no scaling of Llama 3's kind has these divisors")
    return None


def _fits(turns: Sequence[float], divisors: Sequence[float], factor: float, low: float, high: float) -> bool:
    """Whether these borders give these divisors; `turns` are how often each pair turns in the original context."""
    for turn, divisor in zip(turns, divisors, strict=True):
        s = min(max((turn - low) / (high - low), 0.0), 1.0)
        if abs(((1 - s) / factor + s) * divisor - 1) > _CLOSE:
            return False
    return True


def short(value: float) -> float:
    """The shortest decimal that is the same fp32 number: 1e-05 for 9.999999747378752e-06, as configs have it."""
    import struct

    if not math.isfinite(value) or abs(value) > 3e38:
        return value
    bits = struct.pack("<f", value)
    return next((v for p in range(1, 9) if struct.pack("<f", v := float(f"{value:.{p}g}")) == bits), value)
