"""Attributes of ops: how a definition declares them and how a value from a spec is checked against the declaration.

An op class is a frozen dataclass whose fields are made with `attr`. Field order is the order of positional arguments.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from hybridc.diagnostics import did_you_mean


class AttrError(ValueError):
    """A value does not fit its attribute. `code` is the diagnostic's, the message its label, `help` its remedy."""

    def __init__(self, label: str, help: str, code: str = "HYB111") -> None:
        super().__init__(label)
        self.help = help
        self.code = code


@dataclass(frozen=True)
class Int:
    """An integer of at least `low`."""

    low: int = 1

    def coerce(self, value: object) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise AttrError(f"expected an integer, got {show(value)}", "write a whole number")
        if value < self.low:
            raise AttrError(f"expected at least {self.low}, got {value}", f"use {self.low} or more", "HYB112")
        if value > 2**40:
            raise AttrError(f"{value} is larger than any tensor dim can be", "use a number below 2**40", "HYB112")
        return value

    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True)
class Float:
    """A number above `low` (or equal to it, when not `strict`); finite unless `infinite`."""

    low: float = -math.inf
    strict: bool = False
    infinite: bool = False

    def coerce(self, value: object) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise AttrError(f"expected a number, got {show(value)}", "write a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
            raise AttrError(f"expected a finite number, got {show(value)}", "write a finite number", "HYB112")
        if number < self.low or (self.strict and number == self.low):
            bound = f"above {self.low:g}" if self.strict else f"at least {self.low:g}"
            raise AttrError(f"expected a number {bound}, got {show(value)}", f"use a number {bound}", "HYB112")
        return number

    def __str__(self) -> str:
        return "float"


@dataclass(frozen=True)
class Flag:
    """true or false."""

    def coerce(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise AttrError(f"expected true or false, got {show(value)}", "write true or false")
        return value

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True)
class Choice:
    """One of a few words, written bare or quoted."""

    options: tuple[str, ...]

    def coerce(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.options:
            shown = show(value)
            raise AttrError(f"{shown} is not one of the choices", did_you_mean(str(value), self.options), "HYB113")
        return value

    def __str__(self) -> str:
        return "|".join(self.options)


@dataclass(frozen=True)
class Floats:
    """A tuple of `count` numbers, or of one or more where that is 0."""

    count: int
    infinite: bool = False

    def coerce(self, value: object) -> tuple[float, ...]:
        if not isinstance(value, tuple) or len(value) != (self.count or max(1, len(value))):
            wanted = f"{self.count} numbers" if self.count else "numbers"
            raise AttrError(f"expected {wanted}, got {show(value)}", f"write a tuple of {wanted}")
        return tuple(Float(infinite=self.infinite).coerce(v) for v in value)

    def __str__(self) -> str:
        return f"({', '.join(['float'] * self.count)})" if self.count else "(float, ...)"


@dataclass(frozen=True)
class Record:
    """Another op or record used as an attribute, such as `rope(...)`; `kinds` are the ones that fit here."""

    kinds: tuple[str, ...]

    def coerce(self, value: object) -> object:
        kind = getattr(type(value), "kind", None)
        if kind not in self.kinds:
            wanted = " or ".join(f"{k}(...)" for k in self.kinds)
            raise AttrError(f"expected {wanted}, got {show(value)}", f"write {wanted}")
        return value

    def __str__(self) -> str:
        return "|".join(f"{k}(...)" for k in self.kinds)


AttrType = Int | Float | Flag | Choice | Floats | Record
REQUIRED: Any = object()


def attr(type: AttrType, default: Any = REQUIRED, *, doc: str, derived: str = "", optional: bool = False) -> Any:
    """A field of an op.

    `derived` tells what an absent value becomes (the field then holds 0 until the op is resolved); `optional` lets
    the language's `none` through as None.
    """
    metadata = {"type": type, "doc": doc, "derived": derived, "optional": optional, "required": default is REQUIRED}
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def coerce(field: dataclasses.Field[Any], value: object) -> object:
    """`value` as the field wants it. Raises AttrError."""
    if value is None and field.metadata["optional"]:
        return None
    kind: AttrType = field.metadata["type"]
    return kind.coerce(value)


def show(value: object) -> str:
    """A value as the language writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, tuple):
        inner = ", ".join(map(show, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if dataclasses.is_dataclass(value):
        kind = getattr(type(value), "kind", type(value).__name__)
        return f"{kind}({', '.join(f'{k}={show(v)}' for k, v in changed(value))})"
    return repr(value)


def changed(value: Any) -> list[tuple[str, object]]:
    """The fields of an op or record that differ from their defaults, in order."""
    out = []
    for field in dataclasses.fields(value):
        current = getattr(value, field.name)
        if field.default is dataclasses.MISSING or current != field.default:
            out.append((field.name.rstrip("_"), current))
    return out
