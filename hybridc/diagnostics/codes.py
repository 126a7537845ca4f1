"""The registry of diagnostic codes: what each means at length, for `hybridc explain CODE`.

HYB0xx syntax, HYB1xx names and types, HYB2xx ops, shapes and mesh, HYB3xx selectors and precision, HYB4xx files and
imports, HYB5xx foreign configs and weights, HYB6xx the environment.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """`title` heads each diagnostic; `explanation` is the long form; `example` a spec fragment that has the mistake."""

    title: str
    explanation: str
    example: str = ""


CODES: dict[str, Code] = {
    "HYB001": Code("syntax error", "The text does not follow the grammar of the language at this place."),
}
