"""The Python builder: the same AST as spec text, from expressions.

`x + f + g` in a block's function is two residual sublayers, as `x += f` and `x += g` are; ops that are piped into
nothing read the residual stream.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from hybridc.diagnostics import NO_SPAN, Sink, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.depth import MAX_NESTING, too_deep
from hybridc.frontend.expressions import (
    BlockRef,
    E,
    call,
    concat,
    dynamic,
    error,
    fp8,
    fsdp,
    hybrid,
    kaiming,
    mesh,
    name,
    normal,
    op_factory,
    own,
    pattern,
    replicate,
    seq,
    to_node,
    word,
)  # fmt: skip
from hybridc.frontend.names import check_name

__all__ = [
    "PUBLIC", "BlockRef", "E", "Model", "call", "concat", "dynamic", "fp8", "fsdp", "hybrid", "kaiming", "mesh",
    "name", "normal", "op_factory", "own", "pattern", "replicate", "rule", "seq", "to_node",
]  # fmt: skip

PUBLIC = (
    "Model", "E", "seq", "pattern", "concat", "mesh", "rule", "fp8", "fsdp", "replicate", "dynamic", "hybrid", "name",
    "normal", "kaiming", "own",
)  # fmt: skip
"""What `hybridc.NAME` finds here besides ops."""

_ENTRIES = ("embed", "layers", "head", "mtp", "init")
_SELECTOR = re.compile(r"[A-Za-z0-9_.*\[\]:, -]+")


def rule(format: Any, *on: str, exclude: Sequence[str] | str = ()) -> ast.Default | ast.Rule:
    """`FORMAT on SELECTORS except SELECTORS`; without selectors, `default FORMAT`."""
    node = to_node(format)
    without = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    if on:
        return ast.Rule(node, _selectors(on), _selectors(without))
    if without:
        raise error("a default has no exceptions", "name what the rule is on, or write a later rule", "HYB110")
    return ast.Default(node)


class Model:
    """A model in the making. Keyword arguments are its params.

    Settable, in any order: `embed`, `layers`, `head`, `mtp`, `init`; `mesh` (made by `hybridc.mesh`); and `precision`
    (a format, or a list of formats and `hybridc.rule`s). `m.precision(format, *selectors, exclude=())` adds one rule.
    A model equals the AST of its text.
    """

    def __init__(self, name: str, **params: Any) -> None:
        self.name = name
        self._members: list[ast.Member] = []
        self._entries: dict[str, ast.Expr] = {}
        self._rules: list[ast.Default | ast.Rule] = []
        self._mesh: ast.Mesh | None = None
        for key, value in params.items():
            self.param(key, value)

    def param(self, name: str, value: Any) -> E:
        """`param name = value`; the result stands for it."""
        self._members.append(ast.Param(_checked(name, "param"), to_node(value)))
        return E(ast.Name(name))

    def let(self, name: str, value: Any) -> E:
        """`let name = value`; the result stands for it."""
        self._members.append(ast.Let(_checked(name, "let"), to_node(value)))
        return E(ast.Name(name))

    def block(self, name: str, body: Callable[..., Any], *, shared: int | None = None, **params: Any) -> BlockRef:
        """`block name(params) { ... }`; a param whose default is `...` must be given where the block is used.

        `body` takes the stream, as its second argument the embedding's result if it wants that (or by the name x0),
        and by their names the params and `layer`. It returns the new stream: `x + a + b` is `x += a; x += b`,
        anything else `x = ...`. `shared=2` is `shared(2) block`; True is one set of weights.
        """
        _checked(name, "block")
        formals = tuple(
            ast.Param(word(key, "block param"), None if value is ... else to_node(value))
            for key, value in params.items()
        )
        made = ast.Block(name, formals, _statements(to_node(_run(name, body, params))), _weight_sets(shared))
        self._members.append(made)
        return BlockRef(name)

    def precision(self, format: Any, *on: str, exclude: Sequence[str] | str = ()) -> None:
        """Adds `FORMAT on SELECTORS except SELECTORS`; without selectors, the default."""
        self._rules.append(rule(format, *on, exclude=exclude))

    def __setattr__(self, key: str, value: Any) -> None:
        if key in _ENTRIES:
            self._entries[key] = to_node(value)
        elif key == "mesh":
            if value is not None and not isinstance(value, ast.Mesh):
                raise error("a model's mesh is made by hybridc.mesh", "write m.mesh = hybridc.mesh(tp=2)")
            self._mesh = value
        elif key == "precision":
            self._rules = _rules(value)
        elif key == "name":
            super().__setattr__(key, _checked(value, "model"))
        elif key.startswith("_"):
            super().__setattr__(key, value)
        else:
            options = [*_ENTRIES, "mesh", "precision", "name"]
            raise error(f"a model has no part `{key}`", did_you_mean(key, options), "HYB006")

    def __getattr__(self, key: str) -> Any:
        entries = self.__dict__.get("_entries", {})
        if key in entries:
            return E(entries[key])
        if key == "mesh":
            return self._mesh
        known = key in _ENTRIES
        raise AttributeError(f"the model has no `{key}` yet" if known else f"a model has no attribute `{key}`")

    @property
    def ast(self) -> ast.Spec:
        """The spec that has been built so far. Raises DiagnosticError (HYB002) for nesting that no text may have."""
        entries = tuple(ast.Entry(k, self._entries[k]) for k in _ENTRIES if k in self._entries)
        precision = ast.Precision(tuple(self._rules)) if self._rules else None
        spec = ast.Spec((), (), ast.Model(self.name, (*self._members, *entries)), precision, self._mesh)
        if too_deep(spec):
            raise error(f"more than {MAX_NESTING} levels of nesting", "name inner parts with lets", "HYB002")
        return spec

    def to_spec(self) -> str:
        """Canonical text; parsing it gives a spec equal to this model."""
        from hybridc.frontend.document import print_spec

        return print_spec(self.ast)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Model):
            return self.ast == other.ast
        return isinstance(other, ast.Spec) and self.ast == other

    __hash__ = object.__hash__


def _checked(name: Any, what: str) -> str:
    """The name, if a `what` may have it."""
    word(name, f"{what} name")
    sink = Sink()
    check_name(name, NO_SPAN, what, sink)
    sink.check()
    return str(name)


def _weight_sets(shared: Any) -> int | None:
    if shared is None or shared is False:
        return None
    if not isinstance(shared, int) or shared < 1:
        raise error(f"shared={shared!r} is no number of weight sets", "write shared=1 or more, or True", "HYB112")
    return int(shared)


def _run(name: str, body: Callable[..., Any], params: dict[str, Any]) -> Any:
    """What the block's function returns for the stream, x0 and the params that it asks for."""
    try:
        wanted = list(inspect.signature(body).parameters.values())
    except (TypeError, ValueError):
        help = "write for example lambda x: x + hybridc.rmsnorm()"
        raise error(f"the body of block `{name}` is not a function", help) from None
    kinds = inspect.Parameter
    if not wanted or wanted[0].kind in (kinds.KEYWORD_ONLY, kinds.VAR_KEYWORD):
        raise error(f"the body of block `{name}` takes no stream", "let its first argument be x")
    args: list[Any] = [E(ast.Name("x"))]
    kwargs: dict[str, Any] = {}
    for place, parameter in enumerate(wanted[1:], 1):
        if parameter.kind is kinds.VAR_KEYWORD:
            kwargs |= {key: E(ast.Name(key)) for key in params if key not in kwargs}
            continue
        if parameter.kind is kinds.VAR_POSITIONAL:
            continue
        known = parameter.name in params or parameter.name in ("x0", "layer")
        if not known and parameter.default is not kinds.empty:
            continue
        if not known and (place != 1 or parameter.kind is kinds.KEYWORD_ONLY):
            help = did_you_mean(parameter.name, [*params, "x0", "layer"])
            raise error(
                f"the body of block `{name}` asks for `{parameter.name}`, which the block lacks", help, "HYB101"
            )
        value = E(ast.Name(parameter.name if known else "x0"))
        if parameter.kind is kinds.POSITIONAL_ONLY or not known:
            args.append(value)
        else:
            kwargs[parameter.name] = value
    result = body(*args, **kwargs)
    if result is None:
        raise error(f"the body of block `{name}` returns nothing", "return the new stream, such as x + a")
    return result


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


def _rules(value: Any) -> list[ast.Default | ast.Rule]:
    """What `m.precision = value` means."""
    if value is None:
        return []
    if isinstance(value, ast.Precision):
        return list(value.rules)
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item if isinstance(item, (ast.Default, ast.Rule)) else rule(item) for item in items]


def _selectors(texts: tuple[str, ...]) -> tuple[ast.Selector, ...]:
    from hybridc.frontend.parser import parse

    out: list[ast.Selector] = []
    for text in texts:
        sink = Sink()
        rules: tuple[ast.Default | ast.Rule, ...] = ()
        if isinstance(text, str) and _SELECTOR.fullmatch(text):
            spec = parse(f"precision {{ fp32 on {text} }}", "<selector>", sink)
            rules = spec.precision.rules if spec.precision else ()
        if len(rules) != 1 or not isinstance(rules[0], ast.Rule) or rules[0].exclude or sink.errors:
            raise error(f"{str(text)[:40]!r} is not a selector", "write for example layers[1:-1].attn", "HYB001")
        out += rules[0].on
    return tuple(out)
