"""Rotary settings of public configs, old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`), to `rope(...)`."""

from __future__ import annotations

from typing import Any

from hybridc.diagnostics import NO_SPAN, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, unless
from hybridc.frontend.hf.config import Config

_FIELDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "truncate"),
}
_NAMES = {"original_max_position_embeddings": "original_max"}
_DEFAULTS = {
    "factor": 1.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": True,
}


def rope(config: Config, *, theta: float, max_positions: int, partial: float = 1.0) -> ast.Call:
    """`rope(...)` with what differs from the op's defaults. `theta` and `max_positions` are the family's defaults."""
    old_theta = config.number("rope_theta", theta)
    old = config.take("rope_scaling", None, dict)
    new = config.take("rope_parameters", None, dict)
    settings: dict[str, Any] = dict(new or old or {})
    kind = settings.pop("rope_type", settings.pop("type", "default"))
    settings.pop("type", None)
    base = settings.pop("rope_theta", old_theta)
    partial = settings.pop("partial_rotary_factor", partial)
    if kind not in _FIELDS:
        config.sink.report(
            "HYB503", NO_SPAN, f"rope of type {kind!r} is not supported", did_you_mean(str(kind), _FIELDS)
        )
        return call("rope")
    extra: dict[str, Any] = {}
    for name in _FIELDS[kind]:
        value = settings.pop(name, None)
        if name == "original_max_position_embeddings":
            positions = config.take("max_position_embeddings", max_positions, int)
            extra["original_max"] = unless(value or positions, 8192)
        elif value is not None:
            extra[_NAMES.get(name, name)] = unless(value, _DEFAULTS.get(name))
    for name in settings:
        if settings[name] is not None:
            label = f"rope of type {kind!r} has a field `{name}`, which is not known"
            config.sink.report("HYB502", NO_SPAN, label, did_you_mean(name, _FIELDS[kind]))
    shown = {"kind": None if kind == "default" else kind, "partial": unless(float(partial), 1.0)}
    return call("rope", theta=unless(float(base), 10000.0), **shown, **extra)
