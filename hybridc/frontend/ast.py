"""The abstract syntax tree that spec text, the Python builder and the config importers all make.

Nodes are frozen and compare by content; spans, comments and the spelling of numbers do not take part in equality, so
`parse(format(x)) == parse(x)` and a built model equals its text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hybridc.diagnostics import NO_SPAN, Span


@dataclass(frozen=True, kw_only=True)
class Node:
    """`span` is where the node stands in its file."""

    span: Span = field(default=NO_SPAN, compare=False, repr=False)


# --- expressions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Num(Node):
    """`text` is the author's spelling (`1e11`), kept by the formatter."""

    value: int | float
    text: str = field(default="", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Str(Node):
    """`"text"`."""

    value: str


@dataclass(frozen=True)
class Bool(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True)
class Nil(Node):
    """`none`."""


@dataclass(frozen=True)
class Name(Node):
    """A bare word: a param, let, block, value or choice."""

    id: str


@dataclass(frozen=True)
class Keyword(Node):
    """`name=value` in a call. `name` may be a quoted string (`pattern("M-", "-"=Mlp)`)."""

    name: str
    value: Expr
    quoted: bool = False


@dataclass(frozen=True)
class Call(Node):
    """`func(args, name=value)`."""

    func: str
    args: tuple[Expr, ...] = ()
    kwargs: tuple[Keyword, ...] = ()


@dataclass(frozen=True)
class Label(Node):
    """`name: value` names a submodule. Binds tighter than `>>`: it takes one call, name or parenthesis."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Pipe(Node):
    """`a >> b >> c`, flattened."""

    stages: tuple[Expr, ...]


@dataclass(frozen=True)
class Parallel(Node):
    """`a | b | c`, flattened: parallel branches in a block, stage boundaries in a layer pattern."""

    branches: tuple[Expr, ...]


@dataclass(frozen=True)
class Sequence(Node):
    """`M M A`: layers one after the other. At least two items."""

    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Unary(Node):
    """`op` is `-` or `not`."""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Binary(Node):
    """`op` is one of + - * / // % == != < <= > >= and or."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Conditional(Node):
    """`then if test else other`."""

    test: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True)
class Range(Node):
    """`start..stop`: the integers from `start` up to but not including `stop`; in a mesh, both ends count."""

    start: Expr
    stop: Expr


@dataclass(frozen=True)
class TupleExpr(Node):
    """`(a, b)`."""

    items: tuple[Expr, ...]


@dataclass(frozen=True)
class ListExpr(Node):
    """`[a, b]`."""

    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Comprehension(Node):
    """`[element for var in iterable if condition]`."""

    element: Expr
    var: str
    iterable: Expr
    condition: Expr | None = None


Expr = (
    Num | Str | Bool | Nil | Name | Call | Label | Pipe | Parallel | Sequence | Unary | Binary | Conditional | Range
    | TupleExpr | ListExpr | Comprehension
)  # fmt: skip

# --- model ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import(Node):
    """`import "path"`."""

    path: str


@dataclass(frozen=True)
class Param(Node):
    """`param name = value`, in a model or in a block's parentheses; `value` is None for a block param that must be
    given."""

    name: str
    value: Expr | None


@dataclass(frozen=True)
class Let(Node):
    """`let name = value`."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Statement(Node):
    """`target += value` (op "+=") or `target = value` (op "=")."""

    target: str
    op: str
    value: Expr


@dataclass(frozen=True)
class Block(Node):
    """`block NAME(params) { body }`; `shared` is None, or the number of weight sets that occurrences take in turn."""

    name: str
    params: tuple[Param, ...] = ()
    body: tuple[Statement, ...] = ()
    shared: int | None = None


@dataclass(frozen=True)
class Entry(Node):
    """`embed = ..`, `layers = ..`, `head = ..`, `mtp = ..` or `init = ..`."""

    name: str
    value: Expr


Member = Param | Let | Block | Entry


@dataclass(frozen=True)
class Model(Node):
    """`model name { members }`."""

    name: str
    members: tuple[Member, ...] = ()


# --- precision and mesh --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slice(Node):
    """`[start:stop]`, or `[start]` when `single`. Python's meaning."""

    start: int | None
    stop: int | None
    single: bool = False


@dataclass(frozen=True)
class Step(Node):
    """One part of a path: a name, `*` (one part) or `**` (any number), with an index or not."""

    name: str
    index: Slice | None = None


@dataclass(frozen=True)
class Selector(Node):
    """`layers[1:-1].attn`: steps joined by dots."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Default(Node):
    """`default FORMAT`."""

    format: Expr


@dataclass(frozen=True)
class Rule(Node):
    """`FORMAT on SELECTORS [except SELECTORS]`."""

    format: Expr
    on: tuple[Selector, ...]
    exclude: tuple[Selector, ...] = ()


@dataclass(frozen=True)
class Precision(Node):
    """`precision { rules }`."""

    rules: tuple[Default | Rule, ...] = ()


@dataclass(frozen=True)
class Axis(Node):
    """`name = value` in a mesh."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Mesh(Node):
    """`mesh { axes }`."""

    axes: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class Spec(Node):
    """A file: imports, then lets and blocks that other files may import, a model, precision, mesh.

    A library file has no model. Member order is the author's.
    """

    imports: tuple[Import, ...] = ()
    members: tuple[Let | Block, ...] = ()
    model: Model | None = None
    precision: Precision | None = None
    mesh: Mesh | None = None


def walk(node: object) -> list[Node]:
    """All nodes below and including `node`."""
    out: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, tuple):
            stack.extend(current)
        elif isinstance(current, Node):
            out.append(current)
            stack.extend(v for k, v in vars(current).items() if k != "span")
    return out
