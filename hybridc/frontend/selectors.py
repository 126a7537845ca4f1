"""Selectors: paths and globs over the module tree to the modules and parameters that they name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from hybridc.diagnostics import Span, nearest
from hybridc.frontend import ast
from hybridc.frontend.printer import selector as print_selector
from hybridc.frontend.scope import Report
from hybridc.ir.describe import describe
from hybridc.ir.graph import Block, Module
from hybridc.ir.ops import names

PLACES = ("rollout", "dispatch", "kv_cache")
"""What a precision rule can stand on that is no module."""


@dataclass(frozen=True)
class Target:
    """A place in the module tree: `layer` is a layer's index, or -1 in `embed` and `head`.

    `kind` is that of the op which the place is or is part of, "" above ops; `depth` the length of that op's path.
    """

    path: tuple[str, ...]
    layer: int
    block: str
    kind: str = ""
    depth: int = 0


def tree(module: Module) -> Iterator[Target]:
    """All modules and parameters: `embed`, `layers.0`, `layers.0.attn`, `layers.0.attn.qkv`,
    `layers.0.attn.qkv.weight`, ...

    Needs inferred types.
    """
    members = {name: _members(block) for name, block in module.by_name.items()}
    places: list[tuple[tuple[str, ...], int, str]] = [(("embed",), -1, "embed")]
    places += [(("layers", str(n)), n, layer.block) for n, layer in enumerate(module.layers)]
    places.append((("head",), -1, "head"))
    for prefix, layer, block in places:
        yield Target(prefix, layer, block)
        for path, kind, depth in members[block]:
            yield Target((*prefix, *path), layer, block, kind, depth + len(prefix))


def _members(block: Block) -> list[tuple[tuple[str, ...], str, int]]:
    """Paths below a block, each with the kind and depth of its op; the parts of an op are named by its parameters."""
    out: dict[tuple[str, ...], tuple[str, int]] = {}
    for node in block.nodes:
        if not node.path:
            continue
        path = tuple(node.path.split("."))
        for n in range(1, len(path)):
            out.setdefault(path[:n], ("", 0))
        kind = type(node.op).kind
        out[path] = (kind, len(path))
        for param in node.op.params(block.widths(node)):
            parts = tuple(param.name.split("."))
            for n in range(1, len(parts) + 1):
                out.setdefault((*path, *parts[:n]), (kind, len(path)))
    return [(path, kind, depth) for path, (kind, depth) in out.items()]


def select(selector: ast.Selector, module: Module, report: Report, targets: list[Target]) -> list[Target]:
    """The targets that `selector` names; one that names nothing is reported with the nearest name."""
    steps = list(selector.steps)
    if len(steps) == 1 and steps[0].name in PLACES:
        return []
    _check_indices(selector, len(module.layers), report)
    bare = len(steps) == 1 and steps[0].index is None and steps[0].name not in ("*", "**", "embed", "head", "layers")
    blocks = set(module.by_name) | {b.title.partition("(")[0] for b in module.blocks}
    found = []
    for target in targets:
        if bare:
            name = steps[0].name
            of_kind = target.kind == name and len(target.path) == target.depth
            if target.path[-1] == name or of_kind or (name == target.block and len(target.path) == 2):
                found.append(target)
        elif _matches(steps, target, len(module.layers), blocks):
            found.append(target)
    if not found:
        words = {t.path[-1] for t in targets if not t.path[-1].isdigit()} | {t.kind for t in targets} | blocks - {""}
        wrong = next((s for s in steps if s.name not in words | {"*", "**", "layers"}), None)
        if wrong is not None and wrong.name in _known_parts():
            label = f"this model has no `{wrong.name}`, so `{print_selector(selector)}` matches nothing"
            report.sink.report("HYB306", wrong.span, label, "leave it out", severity="warning")
            return []
        near = nearest(wrong.name, words | _known_parts()) if wrong else None
        where = wrong.span if wrong and wrong.span.file else selector.span
        report.sink.report(
            "HYB301",
            where,
            f"`{print_selector(selector)}` matches nothing",
            f"did you mean `{near}`?" if near else f"there are: {', '.join(sorted(w for w in words if w)[:16])}",
        )
    return found


@functools.cache
def _known_parts() -> frozenset[str]:
    """Ops, and the names of the parts that ops have: what is spelt right though a model may lack it."""
    parts = set(names(records=False))
    for name in names(records=False):
        parts |= {part for path, _ in describe(name).parameters for part in path.split(".")}
    return frozenset(parts)


def _matches(steps: list[ast.Step], target: Target, layers: int, blocks: set[str]) -> bool:
    """Whether a path of several steps names the target: from the root, from a block's name, or from a name or kind
    anywhere."""
    first = steps[0].name
    if first in ("layers", "embed", "head", "*", "**"):
        return _glob(steps, target.path, layers)
    if first in blocks:
        own = target.block == first or target.block.startswith(first + "_")
        return own and target.layer >= 0 and _glob(steps[1:], target.path[2:], layers)
    if target.kind == first and _glob(steps[1:], target.path[target.depth :], layers):
        return True
    return any(part == first and _glob(steps[1:], target.path[n + 1 :], layers) for n, part in enumerate(target.path))


def _glob(steps: list[ast.Step], path: tuple[str, ...], layers: int) -> bool:
    if not steps:
        return not path
    step = steps[0]
    if step.name == "**":
        return any(_glob(steps[1:], path[n:], layers) for n in range(len(path) + 1))
    if not path or step.name not in ("*", path[0]):
        return False
    if step.index is None:
        return _glob(steps[1:], path[1:], layers) or (step.name == "layers" and len(steps) == 1 and len(path) == 2)
    if len(path) < 2 or not path[1].isdigit() or not _in(step.index, int(path[1]), layers):
        return False
    return _glob(steps[1:], path[2:], layers)


def _in(index: ast.Slice, layer: int, layers: int) -> bool:
    if index.single:
        start = index.start or 0
        return layer == (start + layers if start < 0 else start)
    return layer in range(*slice(index.start, index.stop).indices(layers))


def _check_indices(selector: ast.Selector, layers: int, report: Report) -> None:
    for step in selector.steps:
        if step.index is None:
            continue
        span: Span = step.span if step.span.file else selector.span
        if step.name != "layers":
            report.fail("HYB303", span, f"`{step.name}` has no index", "only `layers` is indexed")
        outside = [b for b in (step.index.start, step.index.stop) if b is not None and not -layers <= b <= layers]
        if step.index.single and step.index.start in (layers,):
            outside.append(layers)
        if outside:
            report.fail(
                "HYB302", span, f"{outside[0]} is outside of the {layers} layers", f"use indices from 0 to {layers - 1}"
            )
        if not step.index.single and not range(*slice(step.index.start, step.index.stop).indices(layers)):
            report.fail(
                "HYB302", span, f"`{print_selector(selector)}` selects no layer", f"the model has {layers} layers"
            )
