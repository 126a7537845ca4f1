"""What a command line sets: params and mesh axes, written into the AST, so that the emitted spec says them too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hybridc.diagnostics import NO_SPAN, Sink, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.meshes import FORMS
from hybridc.frontend.parser import parse


def override(
    spec: ast.Spec, sink: Sink, *, params: Mapping[str, Any] | None = None, mesh: Mapping[str, Any] | None = None
) -> ast.Spec:
    """The spec with other values of its model's params and of mesh axes. Values are numbers, words or their text.

    Names that the model does not have (HYB101), and what is no axis (HYB218, HYB219), go to `sink`.
    """
    if params and spec.model is not None:
        spec = dataclasses.replace(spec, model=_params(spec.model, params, sink))
    if mesh:
        axes = {axis.name: axis for axis in (spec.mesh.axes if spec.mesh else ())}
        for name, value in mesh.items():
            made = _axis(name, str(value), sink)
            if made is not None:
                axes[name] = made
        span = spec.mesh.span if spec.mesh else NO_SPAN
        spec = dataclasses.replace(spec, mesh=ast.Mesh(tuple(axes.values()), span=span))
    return spec


def _params(model: ast.Model, params: Mapping[str, Any], sink: Sink) -> ast.Model:
    known = [m.name for m in model.members if isinstance(m, ast.Param)]
    for name in params:
        if name not in known:
            label = f"the model has no param `{name}` to set"
            sink.report("HYB101", NO_SPAN, label, did_you_mean(name, known))
    members = tuple(
        dataclasses.replace(m, value=literal(params[m.name])) if isinstance(m, ast.Param) and m.name in params else m
        for m in model.members
    )
    return dataclasses.replace(model, members=members)


def literal(value: Any) -> ast.Expr:
    """A value as a node: numbers, true, false and none also from their text, any other text as a string."""
    if isinstance(value, str):
        words: dict[str, Any] = {"true": True, "false": False, "none": None}
        if value in words:
            return literal(words[value])
        for kind in (int, float):
            try:
                return literal(kind(value))
            except ValueError:
                continue
        return ast.Str(value)
    if value is None:
        return ast.Nil()
    if isinstance(value, bool):
        return ast.Bool(value)
    if isinstance(value, (int, float)) and value == value:
        return ast.Num(value) if value >= 0 else ast.Unary("-", ast.Num(-value))
    raise TypeError(f"a param is a number, a word, true, false or none, not {value!r}")


def _axis(name: str, text: str, sink: Sink) -> ast.Axis | None:
    """`tp=2` or `ep=hybrid(node=2, local=4)`; its place is the command line, so it has no span."""
    if name not in FORMS:
        sink.report("HYB218", NO_SPAN, f"there is no mesh axis `{name}`", did_you_mean(name, FORMS))
        return None
    inner = Sink()
    spec = parse(f"mesh {{ {name} = {text} }}", "<mesh>", inner)
    if inner.errors or spec.mesh is None or len(spec.mesh.axes) != 1:
        label = f"`{name}={text}` is not a mesh axis"
        sink.report("HYB219", NO_SPAN, label, "write for example tp=2,dp=fsdp(4)")
        return None
    return ast.Axis(name, _without_spans(spec.mesh.axes[0].value))


def _without_spans(node: Any) -> Any:
    """A copy whose nodes stand nowhere: the text that they were read from is no file of the user's."""
    if isinstance(node, tuple):
        return tuple(map(_without_spans, node))
    if not isinstance(node, ast.Node):
        return node
    values = {f.name: _without_spans(getattr(node, f.name)) for f in dataclasses.fields(node) if f.name != "span"}
    return type(node)(**values)
