"""Expressions of the Python builder: operators, calls of ops and blocks, formats, placements."""

from __future__ import annotations

import keyword
import math
import numbers
import re
from collections.abc import Callable, Mapping
from typing import Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.frontend import ast
from hybridc.frontend.tokens import KEYWORDS, REFUSED

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def error(label: str, help: str, code: str = "HYB111") -> DiagnosticError:
    """A mistake in a Python program, which has no place in a spec."""
    return DiagnosticError([Diagnostic(code, NO_SPAN, label, help)])


def is_word(text: str) -> bool:
    """Whether the language reads `text` as a name."""
    return bool(_IDENTIFIER.fullmatch(text)) and text not in KEYWORDS and text != "inf"


def word(text: Any, what: str) -> str:
    """`text`, if it is a name of the language; otherwise raises DiagnosticError (HYB108)."""
    if not isinstance(text, str):
        raise error(f"a {what} is a string, not {type(text).__name__}", "write a name in quotes")
    if not is_word(text):
        shown = text if len(text) <= 40 else text[:37] + "..."
        help = "names are ASCII letters, digits and underscores, and no word of the language"
        raise error(f"`{shown}` cannot be a {what}", help, "HYB108")
    return text


class E:
    """An expression of the language. Operators build larger ones: `>>`, `|`, `+`, `*`, `-`, `/`, `%`, comparisons."""

    __hash__ = object.__hash__

    def __init__(self, node: ast.Expr) -> None:
        self.node = node

    def __rshift__(self, other: Any) -> E:
        left = self.node.stages if isinstance(self.node, ast.Pipe) else (self.node,)
        node = to_node(other)
        right = node.stages if isinstance(node, ast.Pipe) else (node,)
        return E(ast.Pipe((*left, *right)))

    def __or__(self, other: Any) -> E:
        left = self.node.branches if isinstance(self.node, ast.Parallel) else (self.node,)
        return E(ast.Parallel((*left, to_node(other))))

    def _binary(self, op: str, other: Any, swap: bool = False) -> E:
        left, right = self.node, to_node(other)
        return E(ast.Binary(op, right, left) if swap else ast.Binary(op, left, right))

    def __rrshift__(self, other: Any) -> E:
        return E(to_node(other)) >> self

    def __ror__(self, other: Any) -> E:
        return E(to_node(other)) | self

    def __add__(self, other: Any) -> E:
        return self._binary("+", other)

    def __radd__(self, other: Any) -> E:
        return self._binary("+", other, True)

    def __sub__(self, other: Any) -> E:
        return self._binary("-", other)

    def __rsub__(self, other: Any) -> E:
        return self._binary("-", other, True)

    def __mul__(self, other: Any) -> E:
        return self._binary("*", other)

    def __rmul__(self, other: Any) -> E:
        return self._binary("*", other, True)

    def __truediv__(self, other: Any) -> E:
        return self._binary("/", other)

    def __rtruediv__(self, other: Any) -> E:
        return self._binary("/", other, True)

    def __floordiv__(self, other: Any) -> E:
        return self._binary("//", other)

    def __mod__(self, other: Any) -> E:
        return self._binary("%", other)

    def __rfloordiv__(self, other: Any) -> E:
        return self._binary("//", other, True)

    def __rmod__(self, other: Any) -> E:
        return self._binary("%", other, True)

    def __lt__(self, other: Any) -> E:
        return self._binary("<", other)

    def __le__(self, other: Any) -> E:
        return self._binary("<=", other)

    def __gt__(self, other: Any) -> E:
        return self._binary(">", other)

    def __ge__(self, other: Any) -> E:
        return self._binary(">=", other)

    def __neg__(self) -> E:
        return E(ast.Unary("-", self.node))

    def eq(self, other: Any) -> E:
        """`self == other` in the language (Python's `==` compares expressions)."""
        return self._binary("==", other)

    def ne(self, other: Any) -> E:
        """`self != other` in the language."""
        return self._binary("!=", other)

    def and_(self, other: Any) -> E:
        """`self and other` in the language."""
        return self._binary("and", other)

    def or_(self, other: Any) -> E:
        """`self or other` in the language."""
        return self._binary("or", other)

    def not_(self) -> E:
        """`not self` in the language."""
        return E(ast.Unary("not", self.node))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, E) and self.node == other.node

    def __bool__(self) -> bool:
        raise error(
            "a spec's expression has no truth value in Python", "use `.where(then, other)` for a choice in the spec"
        )

    def where(self, then: Any, other: Any) -> E:
        """`then if self else other` in the language."""
        return E(ast.Conditional(self.node, to_node(then), to_node(other)))

    def named(self, label: str) -> E:
        """`label: self`: names a submodule."""
        return E(ast.Label(word(label, "submodule"), self.node))

    def __repr__(self) -> str:
        from hybridc.frontend.printer import print_expr

        return print_expr(self.node)


class BlockRef(E):
    """A defined block: `H * 4` and `H(window=4096)` are layers."""

    def __init__(self, block: str) -> None:
        super().__init__(ast.Name(block))
        self.block = block

    def __call__(self, *args: Any, **kwargs: Any) -> E:
        return call(self.block, args, kwargs)


def to_node(value: Any) -> ast.Expr:
    """A Python value as a node; a string that is a name becomes one (`act="silu"` is `act=silu`).

    Raises DiagnosticError (HYB111, HYB112) for what the language lacks.
    """
    match value:
        case E():
            return value.node
        case None:
            return ast.Nil()
        case bool():
            return ast.Bool(value)
        case numbers.Integral():
            return _number(int(value))
        case numbers.Real():
            return _number(float(value))
        case str():
            if is_word(value):
                return ast.Name(value)
            return _string(value)
        case tuple() if value:
            return ast.TupleExpr(tuple(map(to_node, value)))
        case list():
            return ast.ListExpr(tuple(map(to_node, value)))
        case range() if value.step == 1:
            return ast.Range(to_node(value.start), to_node(value.stop))
        case _:
            shown = "empty tuple" if value == () else type(value).__name__
            raise error(f"a value of type {shown} has no form in the language", "use numbers, strings, tuples or ops")


def _number(value: int | float) -> ast.Expr:
    if value != value:
        raise error("nan has no form in the language", "use a number", "HYB112")
    if isinstance(value, int) and abs(value) >= 10**400:
        raise error("a whole number of more than 400 digits", "use a smaller one", "HYB112")
    negative = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
    return ast.Unary("-", ast.Num(-value)) if negative else ast.Num(value)


def _string(value: str) -> ast.Str:
    if REFUSED.search(value) or "\r" in value:
        raise error("a string has characters that a spec must not hold", "leave control characters out", "HYB004")
    return ast.Str(value)


def call(func: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> E:
    """`func(args, name=value)`; a trailing underscore makes an argument of a Python keyword (`if_`)."""
    keywords = []
    for key, value in kwargs.items():
        name = key[:-1] if key.endswith("_") and keyword.iskeyword(key[:-1]) else key
        if not _IDENTIFIER.fullmatch(name) or name == "inf":
            raise error(f"`{name[:40]}` cannot be an argument's name", "write a name", "HYB108")
        keywords.append(ast.Keyword(name, to_node(value)))
    return E(ast.Call(func, tuple(map(to_node, args)), tuple(keywords)))


def op_factory(name: str) -> Callable[..., E]:
    """The function that makes calls of an op: `op_factory("attention")(heads=4)`. Raises AttributeError for no op."""
    from hybridc.ir.ops import find, names

    if find(name) is None and name not in names():
        raise AttributeError(name)
    return _calls(name)


def _calls(func: str) -> Callable[..., E]:
    def make(*args: Any, **kwargs: Any) -> E:
        return call(func, args, kwargs)

    make.__name__ = make.__qualname__ = func
    make.__doc__ = f"`{func}(...)` of the language."
    return make


concat, own = _calls("concat"), _calls("own")
fp8, fsdp, replicate, hybrid = _calls("fp8"), _calls("fsdp"), _calls("replicate"), _calls("hybrid")
normal, kaiming = _calls("normal"), _calls("kaiming")


def seq(*layers: Any) -> E:
    """`(A B C)`: layers one after the other."""
    if not layers:
        raise error("a sequence of no layers", "give seq one layer or more")
    nodes = tuple(map(to_node, layers))
    return E(nodes[0] if len(nodes) == 1 else ast.Sequence(nodes))


def pattern(letters: str, blocks: Mapping[str, Any] | None = None, **named: Any) -> E:
    """`pattern("M-M*", M=Mamba, "-"=Mlp)`: a string of one-letter layers. Letters that are no Python names go into
    `blocks`: `pattern("M-", {"-": Mlp}, M=Mamba)`."""
    if not isinstance(letters, str):
        raise error(f"a pattern is a string, not {type(letters).__name__}", 'write pattern("MMA", M=.., A=..)')
    keywords = []
    for key, value in {**named, **(blocks or {})}.items():
        bare = bool(_IDENTIFIER.fullmatch(key)) and key != "inf"
        keywords.append(ast.Keyword(key if bare else _string(key).value, to_node(value), not bare))
    return E(ast.Call("pattern", (_string(letters),), tuple(keywords)))


def name(identifier: str) -> E:
    """A bare name, such as a format or a value of the block."""
    return E(ast.Name(word(identifier, "name")))


def dynamic(low: int, high: int) -> E:
    """`dynamic(low..high)`: context-parallel sizes, both ends included."""
    return E(ast.Call("dynamic", (ast.Range(to_node(low), to_node(high)),)))


def mesh(**axes: Any) -> ast.Mesh:
    """`mesh { tp = 2 }`."""
    return ast.Mesh(tuple(ast.Axis(word(k, "mesh axis"), to_node(v)) for k, v in axes.items()))
