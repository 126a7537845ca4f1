"""Names in force while a spec is lowered, and the evaluation of constant expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from hybridc.diagnostics import Sink, Span, did_you_mean
from hybridc.frontend import ast
from hybridc.ir.attrs import show

Constant = int | float | str | bool | None | tuple["Constant", ...]

STEPS = 300_000
"""Evaluation steps that one spec may take: a spec that doubles itself in each let ends here, not in memory."""


class Failed(Exception):
    """A mistake has been reported and this expression has no value; its statement is given up, the next one is
    tried."""


@dataclass
class Report:
    """The sink, with fuel: everything that evaluates counts its steps here."""

    sink: Sink
    steps: int = 0

    def fail(self, code: str, span: Span, label: str, help: str) -> NoReturn:
        self.sink.report(code, span, label, help)
        raise Failed

    def step(self, span: Span) -> None:
        self.steps += 1
        if self.steps > STEPS:
            self.fail("HYB120", span, "the spec unfolds into too much here", "use fewer or shorter repetitions")


@dataclass
class Binding:
    """What a name stands for: exactly one of a constant, an expression with its scope, a block, a value of the IR."""

    span: Span
    what: str
    constant: Constant = None
    expr: ast.Expr | None = None
    scope: Scope | None = None
    block: ast.Block | None = None
    value: str | None = None
    used: bool = False
    is_constant: bool = False
    cached: tuple[Constant] | None = None
    on_use: Callable[[], None] | None = None


@dataclass
class Scope:
    """A chain of names; the innermost wins."""

    parent: Scope | None = None
    names: dict[str, Binding] = field(default_factory=dict)

    def find(self, name: str) -> Binding | None:
        scope: Scope | None = self
        while scope is not None:
            if (binding := scope.names.get(name)) is not None:
                binding.used = True
                if binding.on_use:
                    binding.on_use()
                return binding
            scope = scope.parent
        return None

    def visible(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.parent

    def constant(self, name: str, value: Constant, span: Span, what: str) -> Binding:
        self.names[name] = Binding(span, what, constant=value, is_constant=True)
        return self.names[name]


def evaluate(expr: ast.Expr, scope: Scope, report: Report) -> Constant:
    """The constant that `expr` is. Reports and raises Failed if it is none."""
    report.step(expr.span)
    match expr:
        case ast.Num() | ast.Str() | ast.Bool():
            return expr.value
        case ast.Nil():
            return None
        case ast.TupleExpr() | ast.ListExpr():
            items = tuple(evaluate(e, scope, report) for e in expr.items)
            if any(isinstance(item, tuple) for item in items):
                report.fail("HYB111", expr.span, "a tuple inside a tuple", "write numbers and words in it")
            return items
        case ast.Name():
            return _name(expr, scope, report)
        case ast.Conditional():
            chosen = expr.then if truth(expr.test, scope, report) else expr.other
            return evaluate(chosen, scope, report)
        case ast.Unary():
            return _unary(expr, scope, report)
        case ast.Binary():
            return _binary(expr, scope, report)
        case ast.Range():
            low, high = integer(expr.start, scope, report), integer(expr.stop, scope, report)
            if high - low > 100_000:
                report.fail("HYB120", expr.span, f"a range of {high - low} numbers", "use a shorter range")
            return tuple(range(low, high))
        case _:
            report.fail(
                "HYB117", expr.span, "this is not a number, word or tuple that is known now", "write a constant here"
            )


def _name(expr: ast.Name, scope: Scope, report: Report) -> Constant:
    binding = scope.find(expr.id)
    if binding is None:
        report.fail("HYB101", expr.span, f"`{expr.id}` is not defined", did_you_mean(expr.id, scope.visible()))
    if binding.is_constant:
        return binding.constant
    if binding.expr is not None and binding.scope is not None:
        if binding.cached is None:
            binding.cached = (evaluate(binding.expr, binding.scope, report),)
        return binding.cached[0]
    report.fail("HYB117", expr.span, f"`{expr.id}` is {binding.what}, not a constant", "use a number, param or let")


def integer(expr: ast.Expr, scope: Scope, report: Report) -> int:
    """The integer that `expr` is."""
    value = evaluate(expr, scope, report)
    if isinstance(value, bool) or not isinstance(value, int):
        report.fail("HYB111", expr.span, f"expected an integer, got {show(value)}", "write a whole number")
    return value


def truth(expr: ast.Expr, scope: Scope, report: Report) -> bool:
    """The boolean that `expr` is."""
    value = evaluate(expr, scope, report)
    if not isinstance(value, bool):
        report.fail("HYB111", expr.span, f"expected true or false, got {show(value)}", "write a comparison")
    return value


def _number(expr: ast.Expr, scope: Scope, report: Report) -> int | float:
    value = evaluate(expr, scope, report)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        report.fail("HYB111", expr.span, f"expected a number, got {show(value)}", "write a number")
    return value


def _unary(expr: ast.Unary, scope: Scope, report: Report) -> Constant:
    if expr.op == "not":
        return not truth(expr.operand, scope, report)
    return -_number(expr.operand, scope, report)


def _binary(expr: ast.Binary, scope: Scope, report: Report) -> Constant:
    if expr.op in ("and", "or"):
        left = truth(expr.left, scope, report)
        return truth(expr.right, scope, report) if left == (expr.op == "and") else left
    if expr.op in ("==", "!="):
        same = evaluate(expr.left, scope, report) == evaluate(expr.right, scope, report)
        return same if expr.op == "==" else not same
    a, b = _number(expr.left, scope, report), _number(expr.right, scope, report)
    if expr.op in ("/", "//", "%") and b == 0:
        report.fail("HYB121", expr.span, "division by zero", "divide by a number other than 0")
    try:
        result = _ARITHMETIC[expr.op](a, b)
    except OverflowError:
        result = math.inf
    if not isinstance(result, bool) and (result != result or abs(result) > 2.0**63):
        report.fail("HYB121", expr.span, "the result is too large", "use smaller numbers")
    return result


_ARITHMETIC: dict[str, Callable[[int | float, int | float], int | float | bool]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
