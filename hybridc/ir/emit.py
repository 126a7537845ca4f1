"""What op definitions hand to codegen: pieces of Python text with their precedence, and the bodies of emitted
classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from hybridc.diagnostics import NO_SPAN, Span
from hybridc.ir.backends import Choice, choose
from hybridc.ir.formats import parse
from hybridc.ir.kernels import Kernel

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


@dataclass(frozen=True)
class Use:
    """A part of an op, who computes it, and where: the op's kind, and where the spec calls it."""

    op: str
    span: Span
    choice: Choice


@dataclass
class Emit:
    """What ops share while one file is emitted: the named constants above its classes, by the text that makes them,
    who computes parts on the `target`, of which `libraries` may be asked, and the `uses` that have been written.

    `path` is the submodule path of the op whose body is being written, below its block, `kind` and `span` what it is
    and where the spec calls it, `formats` the number formats of its projections, `shared` those whose weights ranks
    have between them, or gradients, `given` those of its attributes that are arguments of its class, `inner` the
    generated kernels of its parts, by name, with what each is called with ("" for an op that is computed with others).
    """

    target: str = "cpu"
    dtype: str = "fp32"
    libraries: Sequence[str] = ()
    constants: dict[str, str] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    path: str = ""
    kind: str = ""
    span: Span = NO_SPAN
    formats: Mapping[str, str] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    inner: Mapping[str, tuple[str, Kernel | None]] = field(default_factory=dict)

    def number(self, name: str, value: float) -> str:
        """An attribute of the op being written: a literal, or what the class is given where layers differ in it."""
        return f"self.{name}" if name in self.given else lit(value)

    def part(self, name: str, **facts: object) -> str:
        """What emitted code calls for a part of the op being written, by its name in `ir.backends`; `facts` are those
        that backends ask for."""
        choice = choose(name, {"dtype": self.dtype, **facts}, self.target, self.libraries)
        self.uses.append(Use(self.kind, self.span, choice))
        return choice.offer.text if choice.offer is not None else name

    def serves(self, name: str) -> bool:
        """Whether there is anyone to compute a part on the target."""
        return choose(name, {}, self.target, self.libraries).offer is not None

    def generated(self, part: str, *arguments: str) -> str:
        """A call of the generated kernel for a part of the op being written, "" where there is none."""
        name, kernel = self.inner.get(part, ("", None))
        if kernel is None:
            return ""
        return call(f"kernels.{name}", *arguments, **kernel.options())

    def linear(self, name: str, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> str:
        """The constructor of the projection `name` of the op being written: torch's, or that of the number format which
        a precision rule gives it. `parts` are the rows of the projections fused in it."""
        format = parse(self.formats.get(name, ""))
        facts: dict[str, object] = {"ins": ins, "out": out, "bias": bias}
        if format is None:
            return call(self.part("linear", **facts), ins, out, bias=bias)
        if format.name == "fp8":
            facts |= {"recipe": format.recipe, **dict(format.options), "shared": name in self.shared}
            made = self.part("fp8_linear", **facts)
            return call(made, ins, out, *format.arguments(), bias=bias)
        fused = {"parts": f"({', '.join(map(str, parts))})"} if len(parts) > 1 else {}
        made = self.part("packed_bit_linear" if format.packed else "bit_linear", **facts)
        return call(made, ins, out, bias=bias, **fused)

    def product(self, name: str) -> str:
        """What multiplies with the weight `name` of the op being written, "" for plain products."""
        format = parse(self.formats.get(name, ""))
        if format is None:
            return ""
        if format.name == "bitnet":
            return f"{self.part('bit_product')}()"
        made = self.part("fp8_product", recipe=format.recipe, **dict(format.options))
        return call(made, *format.arguments())

    def below(self, name: str) -> Emit:
        """The same for a composite part of the op being written."""
        start = f"{name}."
        formats = {k.removeprefix(start): v for k, v in self.formats.items() if k.startswith(start)}
        inner = {k.removeprefix(start): v for k, v in self.inner.items() if k.startswith(start)}
        shared = frozenset(k.removeprefix(start) for k in self.shared if k.startswith(start))
        return replace(self, formats=formats, inner=inner, shared=shared)

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
    """A line that is one call or assigns one, its arguments on lines of their own where it is longer than `width`; a
    comment goes behind the bracket. Other long lines stay as they are."""
    code, _, comment = line.partition("  # ")
    head, _, rest = code.partition("(")
    if len(line) <= width or not _closes_at_end(rest):
        return [line]
    inside = f"    {rest[:-1]}"
    rows = [inside] if len(inside) <= width else [f"    {row}" for row in filled(_arguments(rest[:-1]), width - 4)]
    return [f"{head}(" + (f"  # {comment}" if comment else ""), *rows, ")"]


def filled(items: Iterable[str], width: int) -> list[str]:
    """Arguments on as few lines as hold them, each with its comma."""
    rows = [""]
    for item in items:
        piece = f"{item},"
        if rows[-1] and len(rows[-1]) + 1 + len(piece) > width:
            rows.append("")
        rows[-1] += (" " if rows[-1] else "") + piece
    return rows


def _arguments(text: str) -> Iterator[str]:
    """What commas outside of brackets divide."""
    depth, start = 0, 0
    for n, character in enumerate(f"{text},"):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            yield text[start:n].strip()
            start = n + 1


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
