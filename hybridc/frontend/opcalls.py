"""Calls of ops in a spec: arguments bound to an op's attributes and checked against their declared types."""

from __future__ import annotations

import dataclasses
from typing import Any

from hybridc.diagnostics import Span, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.scope import Failed, Report, Scope, evaluate, truth
from hybridc.ir.attrs import AttrError, Choice, Record, coerce
from hybridc.ir.ops import Op, fields, find, names


@dataclasses.dataclass(frozen=True)
class BoundOp:
    """An op with its attributes, the operands given by keyword, and where each argument stands."""

    op: Op
    operands: tuple[tuple[str, ast.Expr], ...]
    spans: tuple[tuple[str, Span], ...]


def bind(call: ast.Call, scope: Scope, report: Report, *, inside: bool = False) -> BoundOp:
    """The op that `call` makes. Reports every argument that is wrong, then raises Failed if there was one.

    `inside` another op's attributes, operands follow from where it stands and are not given.
    """
    found = find(call.func)
    if found is None:
        binding = scope.find(call.func)
        if binding is not None and binding.block is not None:
            report.fail("HYB102", call.span, f"`{call.func}` is a block", "name blocks in `layers`, ops inside blocks")
        report.fail("HYB102", call.span, f"there is no op `{call.func}`", did_you_mean(call.func, names(records=False)))
    kind, preset = found
    known = fields(kind)
    by_position = [n for n in known if n not in preset]
    extra = [o for o in kind.operands[1:] if o != "..."]
    given: dict[str, tuple[ast.Expr, Span]] = {}
    operands: dict[str, ast.Expr] = {}
    failed = False

    def wrong(code: str, span: Span, label: str, help: str) -> None:
        nonlocal failed
        failed = True
        report.sink.report(code, span, label, help)

    for n, arg in enumerate(call.args):
        if n >= len(by_position):
            count = f"{len(by_position)} argument" + ("" if len(by_position) == 1 else "s")
            wrong("HYB114", arg.span, f"`{call.func}` takes at most {count}", f"see `hybridc ops {call.func}`")
            continue
        given[by_position[n]] = (arg, arg.span)
    for kw in call.kwargs:
        if kw.name in given or kw.name in operands:
            wrong("HYB115", kw.span, f"`{kw.name}` is given twice", "give it once")
        elif kw.name in extra and inside:
            wrong("HYB109", kw.span, f"`{kw.name}` follows from where this stands", "leave it out here")
        elif kw.name in extra:
            operands[kw.name] = kw.value
        elif kw.name in preset:
            help = f"use `{kind.kind}({kw.name}=...)` instead of `{call.func}`"
            wrong("HYB109", kw.span, f"`{kw.name}` is what `{call.func}` itself sets", help)
        elif kw.name not in known:
            wrong("HYB109", kw.span, f"`{call.func}` has no argument `{kw.name}`", did_you_mean(kw.name, by_position))
        else:
            given[kw.name] = (kw.value, kw.span)

    values: dict[str, Any] = {known[n].name: v for n, v in preset.items()}
    for name, (expr, span) in given.items():
        try:
            values[known[name].name] = _value(expr, known[name], scope, report)
        except AttrError as error:
            wrong(error.code, span, f"`{name}`: {error}", error.help)
        except Failed:
            failed = True
    for name, field in known.items():
        if name in given or name in preset:
            continue
        default = _from_model(field, scope)
        if default is not None:
            values[field.name] = default
        elif field.metadata["required"] or (field.metadata["derived"].startswith("the model's") and not failed):
            help = f"write `{name}=...`" + (
                "" if field.metadata["required"] else f", or give the model a param `{name}`"
            )
            wrong("HYB110", call.span, f"`{call.func}` needs `{name}`: {field.metadata['doc']}", help)
    for name in extra:
        if name not in operands and not inside:
            wrong("HYB110", call.span, f"`{call.func}` needs `{name}`", f"write `{name}=` and a named value")
    if failed:
        raise Failed
    spans = tuple((n, s) for n, (_, s) in given.items())
    return BoundOp(kind(**values), tuple(operands.items()), spans)


def _from_model(field: dataclasses.Field[Any], scope: Scope) -> Any:
    """The model param that a field falls back to (`dim` of an embedding), if there is one."""
    if not field.metadata["derived"].startswith("the model's"):
        return None
    binding = scope.find(field.name)
    if binding is None or not binding.is_constant:
        return None
    try:
        return coerce(field, binding.constant)
    except AttrError:
        return None


def _value(expr: ast.Expr, field: dataclasses.Field[Any], scope: Scope, report: Report) -> object:
    """An argument's value: a word may stand bare where a choice is wanted, a call where a record is."""
    kind = field.metadata["type"]
    if isinstance(kind, Choice) and isinstance(expr, ast.Name) and scope.find(expr.id) is None:
        return coerce(field, expr.id)
    if isinstance(kind, Record):
        record = _record(expr, kind, scope, report)
        if record is not None:
            return coerce(field, record)
    elif isinstance(expr, ast.Call):
        raise AttrError(f"expected {kind}, got a call of `{expr.func}`", "write a constant")
    return coerce(field, evaluate(expr, scope, report))


def _record(expr: ast.Expr, kind: Record, scope: Scope, report: Report) -> Op | None:
    """The record that a call, a let of one, or a choice between them stands for; None for a constant such as `none`."""
    report.step(expr.span)
    if isinstance(expr, ast.Conditional):
        return _record(expr.then if truth(expr.test, scope, report) else expr.other, kind, scope, report)
    if isinstance(expr, ast.Call):
        if expr.func not in kind.kinds:
            raise AttrError(f"expected {kind}, got `{expr.func}(...)`", f"write {kind}")
        return bind(expr, scope, report, inside=True).op
    if isinstance(expr, ast.Name):
        binding = scope.find(expr.id)
        if binding is not None and binding.expr is not None and binding.scope is not None:
            return _record(binding.expr, kind, binding.scope, report)
    return None
