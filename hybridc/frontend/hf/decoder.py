"""A decoder put together: kinds of layers in order, as a spec that a person would have written and a map of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import groupby
from typing import Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, expr, model, pipe, unless
from hybridc.frontend.hf.parts import Part, norm_suffixes
from hybridc.frontend.hf.weightmap import MAX_TENSORS, Source, WeightMap, same
from hybridc.ir.folding import runs


@dataclass(frozen=True)
class Layer:
    """A kind of layer: a block of statements in which names of `parts` stand for these, `norm` for the model's norm.

    `norms` are the public names of the norms in the order in which they stand in the block. `weights` and `precision`
    hold what the parts do not.
    """

    name: str
    body: tuple[ast.Statement, ...]
    parts: Mapping[str, Part]
    norms: tuple[str, ...] = ()
    weights: Mapping[str, Source] = field(default_factory=dict)
    shared: int | None = None


def layer(
    name: str,
    *sublayers: ast.Expr | ast.Statement,
    parts: Mapping[str, Part],
    norms: Sequence[str] = (),
    weights: Mapping[str, Source] | None = None,
    shared: int | None = None,
) -> Layer:
    """A layer of residual sublayers (`x += e` for each expression) and other statements; `shared` sets of weights."""
    body = tuple(s if isinstance(s, ast.Statement) else ast.Statement("x", "+=", s) for s in sublayers)
    return Layer(name, body, parts, tuple(norms), weights or {}, shared)


@dataclass(frozen=True)
class Names:
    """Where the public file has what belongs to no layer."""

    layer: str = "model.layers.{i}."
    embed: str = "model.embed_tokens.weight"
    norm: str = "model.norm"
    head: str = "lm_head.weight"


def decoder(
    name: str,
    dim: int,
    vocab: int,
    layers: Sequence[Layer],
    norm: ast.Call,
    *,
    tied: bool = False,
    names: Names = Names(),
    embed: Mapping[str, Any] | None = None,
    behind_embed: ast.Call | None = None,
    head: Mapping[str, Any] | None = None,
    init: ast.Entry | None = None,
    order: ast.Expr | None = None,
    ignored: Iterable[str] = (),
    precision: ast.Precision | None = None,
) -> tuple[ast.Spec, WeightMap]:
    """The spec and the map of weights of embedding, `layers` and head.

    Layers with equal names are of one kind. `embed` and `head` are further arguments of `embedding` and `lm_head`,
    `behind_embed` is what the embedding's result goes through, `order` is how the layers are written, if not folded.
    What several kinds share becomes a let.
    """
    kinds = {kind.name: kind for kind in layers}
    shared = _shared_parts(kinds.values())
    lets = [ast.Let("norm", norm), *(ast.Let(label, part.call) for label, part in shared.items())]
    blocks = [_block(kind, shared) for kind in kinds.values()]
    members: list[ast.Let | ast.Block] = _records([*lets, *blocks])
    ends = call("lm_head", vocab, **(head or {}), tied=unless(tied, False))
    spec = model(
        name,
        [
            ast.Param("dim", expr(dim)),
            *members,
            ast.Entry("embed", pipe(call("embedding", vocab, "dim", **(embed or {})), behind_embed)),
            ast.Entry("layers", order or pattern([kind.name for kind in layers])),
            ast.Entry("head", pipe("norm", ends)),
            init,
        ],
    )
    return replace(spec, precision=precision), _weights(layers, norm, names, tied, head or {}, ignored)


def _weights(
    layers: Sequence[Layer],
    norm: ast.Call,
    names: Names,
    tied: bool,
    head: Mapping[str, Any],
    ignored: Iterable[str],
) -> WeightMap:
    entries = {kind.name: _entries(kind, norm) for kind in layers}
    tensors = sum(sum(len(s.names) for s in entries[kind.name][0].values()) for kind in layers)
    if tensors > MAX_TENSORS:
        label = f"the model would have {tensors} tensors in its layers"
        raise DiagnosticError([Diagnostic("HYB503", NO_SPAN, label, "fix the numbers of layers and experts")])
    sources = same(("embed.embedding.weight", names.embed))
    alternatives: dict[str, tuple[Source, ...]] = {}
    for i, kind in enumerate(layers):
        ours, theirs = f"layers.{i}.", names.layer.format(i=i)
        first, others = entries[kind.name]
        sources |= {ours + k: s.below(theirs) for k, s in first.items()}
        alternatives |= {ours + k: tuple(s.below(theirs) for s in found) for k, found in others.items()}
    sources |= same(*((f"head.norm.{s}", f"{names.norm}.{s}") for s in norm_suffixes(norm)))
    if not tied:
        sources |= same(("head.lm_head.weight", names.head))
    if head.get("bias"):
        sources |= same(("head.lm_head.bias", names.head.removesuffix("weight") + "bias"))
    return WeightMap(sources, alternatives, (*ignored, *((names.head,) if tied else ())))


def _entries(kind: Layer, norm: ast.Call) -> tuple[dict[str, Source], dict[str, tuple[Source, ...]]]:
    """Weights of one layer below it, and their alternatives."""
    out = {f"{label}.{k}": s for label, part in kind.parts.items() for k, s in part.weights.items()}
    others = {f"{label}.{k}": s for label, part in kind.parts.items() for k, s in part.alternatives.items()}
    for n, theirs in enumerate(kind.norms, start=1):
        ours = "norm" if n == 1 else f"norm_{n}"
        out |= same(*((f"{ours}.{s}", f"{theirs}.{s}") for s in norm_suffixes(norm)))
    return {**out, **kind.weights}, others


def _shared_parts(kinds: Iterable[Layer]) -> dict[str, Part]:
    """Parts that several kinds have under one label, where all that have the label have the same."""
    found: dict[str, list[Part]] = {}
    for kind in kinds:
        for label, part in kind.parts.items():
            found.setdefault(label, []).append(part)
    return {k: p[0] for k, p in found.items() if len(p) > 1 and all(other.call == p[0].call for other in p)}


def _block(kind: Layer, shared: Mapping[str, Part]) -> ast.Block:
    labels: dict[ast.Node, ast.Node] = {}
    for label, part in kind.parts.items():
        if label not in shared:
            labels[ast.Name(label)] = part.call if part.call.func == label else ast.Label(label, part.call)
    body = tuple(replace(s, value=_replaced(s.value, labels)) for s in kind.body)
    return ast.Block(kind.name, (), body, kind.shared)


RECORDS = {"rope": "positions"}
"""Records that get a let where they stand in several ops, and its name."""


def _records(members: list[ast.Let | ast.Block]) -> list[ast.Let | ast.Block]:
    """A let for each record of RECORDS that stands more than once; numbered where there are several."""
    seen = Counter(n for m in members for n in _nodes(m) if isinstance(n, ast.Call) and n.func in RECORDS)
    lets: list[ast.Let | ast.Block] = []
    names: dict[ast.Node, ast.Node] = {}
    for record, count in seen.items():
        if count > 1 and record.kwargs:
            stem = RECORDS[record.func]
            taken = sum(isinstance(m, ast.Let) and m.name.startswith(stem) for m in lets)
            name = stem if not taken else f"{stem}_{taken + 1}"
            lets.append(ast.Let(name, record))
            names[record] = ast.Name(name)
    return [members[0], *lets, *(_replaced(m, names) for m in members[1:])]


def _nodes(value: object) -> Iterator[ast.Node]:
    if isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, ast.Node):
        yield value
        for f in fields(value):
            yield from _nodes(getattr(value, f.name))


def _replaced(value: Any, names: Mapping[ast.Node, ast.Node]) -> Any:
    """The tree with every node that is a key of `names` replaced."""
    if isinstance(value, tuple):
        return tuple(_replaced(v, names) for v in value)
    if not isinstance(value, ast.Node) or not is_dataclass(value):
        return value
    if value in names:
        return names[value]
    changed = {f.name: _replaced(getattr(value, f.name), names) for f in fields(value) if f.name != "span"}
    return replace(value, **changed)


def _alike(name: str, count: int) -> list[ast.Expr]:
    """One layer several times in a row, folded where it is more than three times."""
    layer = ast.Name(name)
    return [layer] * count if count <= 3 else [ast.Binary("*", layer, expr(count))]


def pattern(names: Sequence[str]) -> ast.Expr:
    """Layers in order, repeated units folded: `(M M M A) * 8`, `(M * 5 A) * 6`."""
    parts: list[ast.Expr] = []
    for unit, count in runs(names):
        items = [e for name, same in groupby(unit) for e in _alike(name, len(list(same)))]
        if count == 1:
            parts += items
        else:
            body = items[0] if len(items) == 1 else ast.Sequence(tuple(items))
            parts.append(ast.Binary("*", body, expr(count)))
    return parts[0] if len(parts) == 1 else ast.Sequence(tuple(parts))
