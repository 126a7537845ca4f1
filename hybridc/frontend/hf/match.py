"""A spec held against a family: the config that it has there, and whether that config is this very model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hybridc.diagnostics import DiagnosticError
from hybridc.frontend import ast
from hybridc.frontend.hf import Imported, export_config, read
from hybridc.frontend.hf.inverse import misfit
from hybridc.frontend.hf.weightmap import Source
from hybridc.ir.attrs import show
from hybridc.ir.graph import Block, Module

Analyse = Callable[[ast.Spec], Module]
"""From a spec to its typed module."""


@dataclass(frozen=True)
class Match:
    """A model as one of a family: what an import of its config gives, and where the public file has its weights."""

    imported: Imported
    sources: Mapping[str, Source]


def match(module: Module, family: str, analyse: Analyse) -> Match:
    """The model of a spec in a family's form ("": the one that it is called by).

    Names of blocks and of submodules may differ; ops, their order and their attributes may not. Raises DiagnosticError:
    HYB501 for an unknown family, HYB514 for a model that the family cannot express, with the first thing that differs.
    """
    config = export_config(module, family)
    try:
        imported = read(config)
        wanted = analyse(imported.spec)
    except DiagnosticError as error:
        # the config says less than the model: what is left of it does not work out
        first = error.diagnostics[0]
        raise misfit(f"the model, as a `{config['model_type']}`, would be wrong: {first.label}") from error
    if len(wanted.layers) != len(module.layers):
        raise misfit(f"the model has {len(module.layers)} layers, its config would have {len(wanted.layers)}")
    names: dict[str, str] = {}
    pairs = [("embed", wanted.embed, module.embed), ("head", wanted.head, module.head)]
    for i, (there, here) in enumerate(zip(wanted.layers, module.layers, strict=True)):
        pairs.append((f"layers.{i}", wanted.by_name[there.block], module.by_name[here.block]))
    for place, theirs, ours in pairs:
        for canonical, own in _paths(place, theirs, ours).items():
            names[f"{place}.{canonical}"] = f"{place}.{own}"
    sources = {_renamed(name, names): source for name, source in imported.weights.sources.items()}
    return Match(imported, sources)


def _paths(place: str, wanted: Block, have: Block) -> dict[str, str]:
    """Submodule paths of the one block by those of the other. Raises where they compute different things."""
    if len(wanted.nodes) != len(have.nodes):
        kinds = (", ".join(type(n.op).kind for n in block.nodes) for block in (have, wanted))
        raise misfit("`{}` has the ops {}, and would have {} in this family".format(place, *kinds))
    values = {a.name: b.name for a, b in zip(wanted.args, have.args, strict=False)}
    out = {}
    for a, b in zip(wanted.nodes, have.nodes, strict=True):
        if a.op != b.op or a.formats != b.formats or tuple(values.get(o, o) for o in a.operands) != b.operands:
            label = f"`{place}.{b.path}` is {show(b.op)}, and would be {show(a.op)} in this family"
            raise misfit(label.replace(".`", "`"))
        values[a.name] = b.name
        if a.path:
            out[a.path] = b.path
    return out


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """A parameter's name with the longest path that is known replaced."""
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        path = ".".join(parts[:n])
        if path in names:
            return ".".join([names[path], *parts[n:]])
    return name
