"""Short forms for building the AST that importers make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hybridc.frontend import ast


def expr(value: Any) -> ast.Expr:
    """A Python value as an expression; words become names, so strings are given as ast.Str."""
    match value:
        case None:
            return ast.Nil()
        case bool():
            return ast.Bool(value)
        case int() | float():
            return ast.Unary("-", ast.Num(-value)) if value < 0 else ast.Num(value)
        case str():
            return ast.Name(value)
        case tuple() | list():
            return ast.TupleExpr(tuple(map(expr, value)))
        case _:
            return value  # type: ignore[no-any-return]


def call(func: str, *args: Any, **kwargs: Any) -> ast.Call:
    """`func(args, k=v)`, keyword arguments that are None left out."""
    keywords = tuple(ast.Keyword(k, expr(v)) for k, v in kwargs.items() if v is not None)
    return ast.Call(func, tuple(map(expr, args)), keywords)


def pipe(*stages: Any) -> ast.Expr:
    """`a >> b`, None left out and inner pipes flattened."""
    flat: list[ast.Expr] = []
    for stage in stages:
        if stage is None:
            continue
        made = expr(stage)
        flat += made.stages if isinstance(made, ast.Pipe) else (made,)
    return flat[0] if len(flat) == 1 else ast.Pipe(tuple(flat))


def scale(factor: float) -> ast.Call | None:
    """`scale(factor)`, or None for a factor of 1."""
    return None if factor == 1.0 else call("scale", factor)


def over(divisor: float | None) -> float | None:
    """The factor that dividing by `divisor` is, or None for 1."""
    return None if divisor is None or divisor == 1.0 else 1.0 / divisor


def unless(value: Any, default: Any) -> Any:
    """The value, or None where it is what an op does anyway."""
    return None if value == default else value


def block(name: str, *sublayers: ast.Expr) -> ast.Block:
    """A block of residual sublayers."""
    return ast.Block(name, (), tuple(ast.Statement("x", "+=", s) for s in sublayers))


def model(name: str, members: Iterable[ast.Member | None]) -> ast.Spec:
    """A spec that is one model."""
    return ast.Spec(model=ast.Model(name, tuple(m for m in members if m is not None)))


def normal_init(std: float) -> ast.Entry:
    """`init = normal(std=..., depth=false)`: how transformers starts most families."""
    return ast.Entry("init", call("normal", std=std, depth=False))
