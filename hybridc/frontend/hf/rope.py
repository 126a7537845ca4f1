"""Rotary settings of public configs, old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`), to `rope(...)`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hybridc.diagnostics import did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, unless
from hybridc.frontend.hf.config import Config

_FIELDS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": None},
    "llama3": {"factor": None, "low_freq_factor": None, "high_freq_factor": None, "original_max": None},
    "yarn": {
        "factor": None,
        "original_max": None,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "attention_factor": None,
        "truncate": True,
        "mscale": None,
        "mscale_all_dim": None,
    },
    "longrope": {"factor": None, "original_max": None, "attention_factor": None, "short": None, "long": None},
}
"""The settings of each kind by our names, with what transformers takes for an absent or null one."""

_REQUIRED = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": ("short", "long"),
}
"""Settings that a kind cannot do without; YaRN's factor follows from the context lengths."""

_THEIRS = {"original_max": "original_max_position_embeddings", "short": "short_factor", "long": "long_factor"}
_DEFAULTS = {
    "factor": 1.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": True,
}
"""What our op takes where an attribute is left out."""


def rope(
    config: Config,
    *,
    theta: float,
    max_positions: int,
    partial: float = 1.0,
    may_be_partial: bool = False,
    interleaved: bool = False,
    given: Mapping[str, Any] | None = None,
    default: Mapping[str, Any] | None = None,
    original_max: int | None = None,
) -> ast.Call:
    """`rope(...)` with what differs from the op's defaults.

    `theta`, `max_positions` and `partial` are the family's defaults; `may_be_partial` says that the family rotates a
    part of each head where the config says so, `interleaved` that its pairs are neighbours. As in transformers,
    `rope_scaling` goes before `rope_parameters`, and what these hold goes before fields of the config itself; `given`
    are settings that were taken from the config already, `default` those of a config without any; `original_max` is the
    context before scaling where the config does not say.
    """
    outer = {"rope_theta": config.number("rope_theta", theta), "partial_rotary_factor": partial}
    if may_be_partial:
        outer["partial_rotary_factor"] = config.number("partial_rotary_factor", partial)
    positions = config.integer("max_position_embeddings", max_positions)
    if given is None:
        old = config.take("rope_scaling", None, dict)
        given = old or config.take("rope_parameters", None, dict) or default or {}
    config.ignore("rope_parameters")
    settings = Config({k: v for k, v in given.items() if v is not None}, config.family, within="rope")
    settings.sink = config.sink
    kind = settings.take("rope_type", settings.take("type", "default", str), str)
    kind = {"su": "longrope"}.get(kind, kind)  # its name in the first Phi-3
    if kind not in _FIELDS:
        settings.refuse("rope_type", kind, did_you_mean(kind, _FIELDS))
        return call("rope")
    base = settings.number("rope_theta", outer["rope_theta"])
    if base <= 1:
        settings.refuse("rope_theta", base, "the base of the wavelengths is above 1")
    part = settings.number("partial_rotary_factor", outer["partial_rotary_factor"])
    if part != partial and not may_be_partial:
        settings.refuse("partial_rotary_factor", part, f"`{config.family}` rotates whole heads: remove the field")
    found = {name: _setting(settings, name, default) for name, default in _FIELDS[kind].items()}
    if "original_max" in found:
        outside = config.integer("original_max_position_embeddings", None) if kind == "longrope" else None
        found["original_max"] = outside or found["original_max"] or original_max or positions
    if kind == "yarn":
        _yarn(found, positions)
    if kind == "longrope":
        _longrope(found, positions)
    for name in _REQUIRED.get(kind, ()):
        if found[name] is None:
            settings.refuse(name, None, f"rope of type {kind!r} needs a value there")
    settings.report_unknown()
    shown = {"kind": None if kind == "default" else kind, "partial": unless(part, 1.0)}
    extra = {name: unless(value, _DEFAULTS.get(name)) for name, value in found.items()}
    return call("rope", theta=unless(base, 10000.0), **shown, **extra, interleaved=unless(interleaved, False))


def _setting(settings: Config, name: str, default: Any) -> Any:
    public = _THEIRS.get(name, name)
    if name in ("short", "long"):
        return _factors(settings, public)
    if name == "truncate":
        return settings.flag(public, default)
    if name == "original_max":
        return settings.integer(public, default)
    return settings.positive(public, default)


def _factors(settings: Config, name: str) -> tuple[float, ...] | None:
    """A factor above 0 for each pair of channels, or None."""
    value = settings.take(name, None, list)
    if value is None:
        return None
    if not value or not all(type(v) in (int, float) and 0 < v < math.inf for v in value):
        settings.refuse(name, value, "give a positive number for each pair of channels that rotates")
        return None
    return tuple(float(v) for v in value)


def _longrope(given: dict[str, Any], positions: int) -> None:
    """LongRoPE's magnitude where it follows from other settings (Ding et al., 2024, as transformers has it)."""
    factor = given.pop("factor") or positions / given["original_max"]
    if given["attention_factor"] is None and factor > 1 and given["original_max"] > 1:
        given["attention_factor"] = math.sqrt(1 + math.log(factor) / math.log(given["original_max"]))


def _yarn(given: dict[str, Any], positions: int) -> None:
    """YaRN's factor and attention factor where they follow from other settings (transformers' modeling_rope_utils)."""
    if given["factor"] is None:
        given["factor"] = positions / given["original_max"]
    above, below = given.pop("mscale"), given.pop("mscale_all_dim")
    if given["attention_factor"] is None and above and below:
        grown = math.log(max(given["factor"], 1.0))
        given["attention_factor"] = (0.1 * above * grown + 1.0) / (0.1 * below * grown + 1.0)
