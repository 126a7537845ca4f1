"""What op definitions hand to codegen: pieces of Python text with their precedence, and the bodies of emitted
classes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from decimal import Decimal

from hybridc.ir.formats import parse

ATOM, MUL, ADD = 3, 2, 1
"""How tightly a piece of text binds: names and calls, products, sums."""


@dataclass(frozen=True, slots=True)
class Code:
    """An expression and how tightly it binds."""

    text: str
    level: int = ATOM

    def at(self, level: int) -> str:
        """The text, in parentheses where it binds less tightly than `level`."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass(frozen=True)
class ClassBody:
    """The inside of the class that a composite op becomes.

    `members` are the lines of `__init__` after `super().__init__()`, `forward` those of `forward`, whose arguments
    after
    `self` are `args`. `state` is the expression that makes the op's cache entry from batch, max_len, device and dtype.
    `inner` are composite submodules by attribute name; each becomes a class of its own.
    """

    members: tuple[str, ...]
    forward: tuple[str, ...]
    args: tuple[str, ...] = ("x",)
    state: str = ""
    inner: tuple[tuple[str, ClassBody], ...] = ()


@dataclass
class Emit:
    """What ops share while one file is emitted: the named constants above its classes, by the text that makes them.

    `path` is the submodule path of the op whose body is being written, below its block, `formats` the number formats of
    its projections, `given` those of its attributes that are arguments of its class.
    """

    constants: dict[str, str] = field(default_factory=dict)
    path: str = ""
    formats: dict[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def number(self, name: str, value: float) -> str:
        """An attribute of the op being written: a literal, or what the class is given where layers differ in it."""
        return f"self.{name}" if name in self.given else lit(value)

    def linear(self, name: str, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> str:
        """The constructor of the projection `name` of the op being written: torch's, or that of the number format which
        a precision rule gives it. `parts` are the rows of the projections fused in it."""
        format = parse(self.formats.get(name, ""))
        if format is None:
            return call("nn.Linear", ins, out, bias=bias)
        if format.name == "fp8":
            return call("ops.FP8Linear", ins, out, *format.arguments(), bias=bias)
        fused = {"parts": f"({', '.join(map(str, parts))})"} if len(parts) > 1 else {}
        return call("ops.PackedBitLinear" if format.packed else "ops.BitLinear", ins, out, bias=bias, **fused)

    def product(self, name: str) -> str:
        """What multiplies with the weight `name` of the op being written, "" for plain products."""
        format = parse(self.formats.get(name, ""))
        return format.product if format is not None else ""

    def below(self, name: str) -> Emit:
        """The same for a composite part of the op being written."""
        inside = {k.removeprefix(f"{name}."): v for k, v in self.formats.items() if k.startswith(f"{name}.")}
        return replace(self, formats=inside)

    def constant(self, stem: str, text: str) -> str:
        """The name of the module-level constant that is `text`; numbered from the second one of a stem on."""
        if text in self.constants:
            return self.constants[text]
        taken = set(self.constants.values())
        name, n = stem, 1
        while name in taken:
            n += 1
            name = f"{stem}_{n}"
        self.constants[text] = name
        return name


def lit(value: float | int | bool | str | None) -> str:
    """A Python literal, floats in their shortest exact spelling (`1e11`, not `100000000000.0`)."""
    if isinstance(value, str):
        return quote(value)
    if not isinstance(value, float):
        return repr(value)
    if value != value or value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    plain = repr(value)
    sign, digits, exponent = Decimal(plain).normalize().as_tuple()
    mantissa = "".join(map(str, digits))
    fraction = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    scientific = f"{'-' if sign else ''}{mantissa[0]}{fraction}e{int(exponent) + len(mantissa) - 1}"
    return scientific if len(scientific) < len(plain) and (len(plain) > 8 or "e" in plain) else plain


def quote(text: str) -> str:
    """A Python string literal in double quotes."""
    return json.dumps(text)


def call(function: str, *args: object, **kwargs: object) -> str:
    """`function(args, k=v)`, with arguments as given when they are strings of code and literals otherwise."""
    shown = [a if isinstance(a, str) else lit(a) for a in args]  # type: ignore[arg-type]
    shown += [f"{k}={v if isinstance(v, str) else lit(v)}" for k, v in kwargs.items()]  # type: ignore[arg-type]
    return f"{function}({', '.join(shown)})"


def broken(line: str, width: int = 104) -> list[str]:
    """A line that is one call or assigns one, its arguments on a line of their own where it is longer than `width`; a
    comment goes behind the bracket. Other long lines stay as they are."""
    code, _, comment = line.partition("  # ")
    head, _, rest = code.partition("(")
    if len(line) <= width or not _closes_at_end(rest):
        return [line]
    return [f"{head}(" + (f"  # {comment}" if comment else ""), f"    {rest[:-1]}", ")"]


def _closes_at_end(rest: str) -> bool:
    """Whether the bracket that was opened before this text is closed by its last character."""
    depth = 1
    for n, character in enumerate(rest):
        depth += (character in "([{") - (character in ")]}")
        if not depth:
            return n == len(rest) - 1
    return False


def scaled(factor: float, text: str) -> str:
    """`factor * text`, or just the text when the factor is 1. `text` must bind at least as tightly as a product."""
    return text if factor == 1.0 else f"{lit(factor)} * {text}"
