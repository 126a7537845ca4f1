"""One colour for each family of ops, the same in the terminal and on the page."""

from __future__ import annotations

from hybridc.ir.ops.base import OPS

TITLES = {
    "attention": "attention",
    "recurrence": "recurrence and convolution",
    "mlp": "feed-forward",
    "moe": "mixture of experts",
    "ends": "embedding and head",
    "linear": "projection",
    "norm": "norm",
    "other": "other",
    "glue": "no parameters",
}

LIGHT = {
    "attention": "#f2a65a",
    "recurrence": "#58a6c9",
    "mlp": "#8fbf7f",
    "moe": "#c58ad6",
    "ends": "#b9b4a7",
    "linear": "#d9c45f",
    "norm": "#d5dbe3",
    "other": "#e39a9a",
    "glue": "#f4f4f1",
}
DARK = {
    "attention": "#b5702a",
    "recurrence": "#2c7396",
    "mlp": "#4c7f3f",
    "moe": "#86489a",
    "ends": "#6c675b",
    "linear": "#8a7722",
    "norm": "#46505d",
    "other": "#9a5050",
    "glue": "#2b2f35",
}

TERMINAL = ("cyan", "yellow", "magenta", "green", "blue", "red", "bright_cyan", "bright_yellow", "bright_magenta")
"""Colours of blocks in a terminal, in order of first occurrence; they start again after the last."""


def family(kind: str, *, parameters: bool = True) -> str:
    """The family of an op kind; "glue" for one that names none and has no parameters."""
    found = OPS[kind].family if kind in OPS else "other"
    return "glue" if found == "other" and not parameters else found
