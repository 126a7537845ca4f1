"""The registry of diagnostic codes: what each means at length, for `hybridc explain CODE`.

HYB0xx syntax, HYB1xx names and types, HYB2xx ops, shapes and mesh, HYB3xx selectors and precision, HYB4xx files and
imports, HYB5xx foreign configs and weights, HYB6xx the environment.
"""

from __future__ import annotations

from hybridc.diagnostics.code import Code
from hybridc.diagnostics.other_codes import OTHER_CODES
from hybridc.diagnostics.spec_codes import SPEC_CODES

CODES: dict[str, Code] = {**SPEC_CODES, **OTHER_CODES}

__all__ = ["CODES", "Code"]
