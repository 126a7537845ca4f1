"""What a diagnostic code means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """`title` heads each diagnostic; `explanation` is the long form; `example` a spec fragment that has the mistake."""

    title: str
    explanation: str
    example: str = ""
