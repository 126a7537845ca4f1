"""A token and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from hybridc.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Lexeme:
    """`type` is the terminal's name in the grammar, `text` its spelling."""

    type: str
    text: str
    span: Span
