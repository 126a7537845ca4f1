"""The Python builder: the same AST as spec text, from expressions.

`x + f + g` in a block's function is two residual sublayers, as `x += f` and `x += g` are; ops that are piped into
nothing
read the residual stream.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any, overload

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.frontend import ast
from hybridc.frontend.names import check_name

PUBLIC = (
    "Model",
    "E",
    "seq",
    "concat",
    "mesh",
    "fp8",
    "fsdp",
    "replicate",
    "dynamic",
    "hybrid",
    "name",
    "normal",
    "kaiming",
)
"""What `hybridc.NAME` finds here besides ops."""


def _error(label: str, help: str, code: str = "HYB111") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, NO_SPAN, label, help)])


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

    def __add__(self, other: Any) -> E:
        return self._binary("+", other)

    def __radd__(self, other: Any) -> E:
        return self._binary("+", other, True)

    def __sub__(self, other: Any) -> E:
        return self._binary("-", other)

    def __mul__(self, other: Any) -> E:
        return self._binary("*", other)

    def __rmul__(self, other: Any) -> E:
        return self._binary("*", other, True)

    def __truediv__(self, other: Any) -> E:
        return self._binary("/", other)

    def __floordiv__(self, other: Any) -> E:
        return self._binary("//", other)

    def __mod__(self, other: Any) -> E:
        return self._binary("%", other)

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, E) and self.node == other.node

    def __bool__(self) -> bool:
        raise _error(
            "a spec's expression has no truth value in Python", "use `.where(then, other)` for a choice in the spec"
        )

    def where(self, then: Any, other: Any) -> E:
        """`then if self else other` in the language."""
        return E(ast.Conditional(self.node, to_node(then), to_node(other)))

    def named(self, label: str) -> E:
        """`label: self`: names a submodule."""
        return E(ast.Label(label, self.node))

    def __repr__(self) -> str:
        from hybridc.frontend.printer import print_expr

        return print_expr(self.node)


class BlockRef(E):
    """A defined block: `H * 4` and `H(window=4096)` are layers."""

    def __init__(self, block: str) -> None:
        super().__init__(ast.Name(block))
        self.block = block

    def __call__(self, *args: Any, **kwargs: Any) -> E:
        return E(_call(self.block, args, kwargs))


def to_node(value: Any) -> ast.Expr:
    """A Python value as a node. Raises DiagnosticError (HYB111) for a type that the language lacks."""
    match value:
        case E():
            return value.node
        case None:
            return ast.Nil()
        case bool():
            return ast.Bool(value)
        case int() | float():
            return ast.Num(value) if value >= 0 else ast.Unary("-", ast.Num(-value))
        case str():
            return ast.Name(value) if value.isidentifier() and value.isascii() else ast.Str(value)
        case tuple():
            return ast.TupleExpr(tuple(map(to_node, value)))
        case list():
            return ast.ListExpr(tuple(map(to_node, value)))
        case range() if value.step == 1:
            return ast.Range(to_node(value.start), to_node(value.stop))
        case _:
            shown = type(value).__name__
            raise _error(f"a value of type {shown} has no form in the language", "use numbers, strings, tuples or ops")


def _call(func: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ast.Call:
    keywords = tuple(
        ast.Keyword(k.rstrip("_") if keyword.iskeyword(k[:-1]) else k, to_node(v)) for k, v in kwargs.items()
    )
    return ast.Call(func, tuple(map(to_node, args)), keywords)


def op_factory(name: str) -> Callable[..., E]:
    """The function that makes calls of an op: `op_factory("attention")(heads=4)`. Raises AttributeError for no op."""
    from hybridc.ir.ops import find, names

    if find(name) is None and name not in names():
        raise AttributeError(name)

    def make(*args: Any, **kwargs: Any) -> E:
        return E(_call(name, args, kwargs))

    make.__name__ = make.__qualname__ = name
    return make


def seq(*layers: Any) -> E:
    """`(A B C)`: layers one after the other."""
    nodes = tuple(map(to_node, layers))
    return E(nodes[0] if len(nodes) == 1 else ast.Sequence(nodes))


def concat(*values: Any) -> E:
    """`concat(a, b)`: values joined on the last dim."""
    return E(_call("concat", values, {}))


def name(identifier: str) -> E:
    """A bare name, such as a format or a value of the block."""
    return E(ast.Name(identifier))


def _format(func: str) -> Callable[..., E]:
    def make(*args: Any, **kwargs: Any) -> E:
        return E(_call(func, args, kwargs))

    return make


fp8, fsdp, replicate, hybrid = _format("fp8"), _format("fsdp"), _format("replicate"), _format("hybrid")
normal, kaiming = _format("normal"), _format("kaiming")


def dynamic(low: int, high: int) -> E:
    """`dynamic(low..high)`: context-parallel sizes, both ends included."""
    return E(ast.Call("dynamic", (ast.Range(to_node(low), to_node(high)),)))


def mesh(**axes: Any) -> ast.Mesh:
    """`mesh { tp = 2 }`."""
    return ast.Mesh(tuple(ast.Axis(k, to_node(v)) for k, v in axes.items()))


class Model:
    """A model in the making. Keyword arguments are its params.

    Settable: `embed`, `layers`, `head`, `mtp`, `init`, `mesh` (see `hybridc.mesh`). A model equals the AST of its text.
    """

    _ENTRIES = ("embed", "layers", "head", "mtp", "init")

    def __init__(self, name: str, **params: Any) -> None:
        _checked(name, "model")
        self.name = name
        self._members: list[ast.Member] = []
        self._entries: dict[str, ast.Expr] = {}
        self._rules: list[ast.Default | ast.Rule] = []
        self._mesh: ast.Mesh | None = None
        for key, value in params.items():
            self.param(key, value)

    def param(self, name: str, value: Any) -> E:
        """`param name = value`; the result stands for it."""
        _checked(name, "param")
        self._members.append(ast.Param(name, to_node(value)))
        return E(ast.Name(name))

    def let(self, name: str, value: Any) -> E:
        """`let name = value`; the result stands for it."""
        _checked(name, "let")
        self._members.append(ast.Let(name, to_node(value)))
        return E(ast.Name(name))

    def block(self, name: str, body: Callable[..., Any], *, shared: int | None = None, **params: Any) -> BlockRef:
        """`block name(params) { ... }`.

        `body` takes x, or x and x0, and the params by name as expressions. It returns the new stream: `x + a + b` is
        `x += a; x += b`, anything else `x = ...`.
        """
        _checked(name, "block")
        import inspect

        x = E(ast.Name("x"))
        wanted = inspect.signature(body).parameters
        arguments = {k: E(ast.Name(k)) for k in (*params, "x0", "layer") if k in wanted}
        result = to_node(body(x, **arguments))
        formals = tuple(ast.Param(k, None if v is ... else to_node(v)) for k, v in params.items())
        self._members.append(ast.Block(name, formals, _statements(result), shared))
        return BlockRef(name)

    def precision(self, format: Any, *on: str, exclude: tuple[str, ...] | str = ()) -> None:
        """`FORMAT on SELECTORS except SELECTORS`; without selectors, the default."""
        node = to_node(format)
        if not on:
            self._rules.append(ast.Default(node))
            return
        without = (exclude,) if isinstance(exclude, str) else exclude
        self._rules.append(ast.Rule(node, _selectors(on), _selectors(without)))

    def __setattr__(self, key: str, value: Any) -> None:
        if key in self._ENTRIES:
            self._entries[key] = to_node(value)
        elif key == "mesh":
            if not isinstance(value, ast.Mesh):
                raise _error("a model's mesh is made by hybridc.mesh", "write m.mesh = hybridc.mesh(tp=2)")
            self._mesh = value
        else:
            super().__setattr__(key, value)

    @property
    def ast(self) -> ast.Spec:
        """The spec that has been built so far."""
        entries = tuple(ast.Entry(k, self._entries[k]) for k in self._ENTRIES if k in self._entries)
        precision = ast.Precision(tuple(self._rules)) if self._rules else None
        return ast.Spec((), (), ast.Model(self.name, (*self._members, *entries)), precision, self._mesh)

    def to_spec(self) -> str:
        """Canonical text; parsing it gives a spec equal to this model."""
        from hybridc.frontend.document import print_spec

        return print_spec(self.ast)

    @overload
    def __eq__(self, other: Model) -> bool: ...
    @overload
    def __eq__(self, other: object) -> bool: ...
    def __eq__(self, other: object) -> bool:
        if isinstance(other, Model):
            return self.ast == other.ast
        return isinstance(other, ast.Spec) and self.ast == other

    __hash__ = object.__hash__


def _checked(name: str, what: str) -> None:
    from hybridc.diagnostics import Sink

    sink = Sink()
    check_name(name, NO_SPAN, what, sink)
    sink.check()


def _statements(result: ast.Expr) -> tuple[ast.Statement, ...]:
    """`x + a + b` as `x += a`, `x += b`; anything else as `x = ...`."""
    added: list[ast.Expr] = []
    node = result
    while isinstance(node, ast.Binary) and node.op == "+":
        added.append(node.right)
        node = node.left
    if node == ast.Name("x") and added:
        return tuple(ast.Statement("x", "+=", value) for value in reversed(added))
    return (ast.Statement("x", "=", result),)


def _selectors(texts: tuple[str, ...]) -> tuple[ast.Selector, ...]:
    from hybridc.frontend.parser import parse

    out: list[ast.Selector] = []
    for text in texts:
        spec = parse(f"precision {{ fp32 on {text} }}", "<selector>")
        rule = spec.precision.rules[0] if spec.precision else None
        if not isinstance(rule, ast.Rule) or rule.exclude or len(spec.precision.rules) != 1:  # type: ignore[union-attr]
            raise _error(f"`{text}` is not a selector", "write for example layers[1:-1].attn", "HYB001")
        out += rule.on
    return tuple(out)
