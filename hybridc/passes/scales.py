"""scales: whether products in few bits have the scales of one rank where tensor-parallel ranks have parts of them."""

from __future__ import annotations

from collections.abc import Iterator

from hybridc.diagnostics import Sink
from hybridc.ir.formats import Format, parse
from hybridc.ir.graph import Block, Module, Node
from hybridc.ir.ops.base import Widths
from hybridc.ir.sharding import CUT, Cut, Rule, Sharded, whole_blocks
from hybridc.passes.collectives import rule_of

BLOCKS = {"block128": 128, "mx": 32}
"""The side of the blocks that have a scale each, of recipes that have such."""


def scales(module: Module, sink: Sink) -> None:
    """Reports HYB310 where a rank's part of a weight is not of whole blocks, HYB312 where a mixer is not cut for that,
    and HYB311 for products that there is no way to cut. Scales of whole tensors and rows need no check: modules take
    them over all ranks."""
    ranks = module.axis("tp")
    if ranks == 1:
        return
    seen: set[tuple[object, ...]] = set()
    nearest = 0
    for node, sharded, part, format in _products(module, ranks):
        found = _cut(sharded, part)
        key = (node.op, part, format)
        if key in seen:
            continue
        seen.add(key)
        name, span = f"{node.op.kind}.{part}" if part else node.op.kind, node.span
        if part in sharded.adds:
            label = f"`{name}` over tp = {ranks}: ranks have parts of a sum there, which cannot be quantized apart"
            sink.report("HYB311", span, label, f"put `{part}` behind the rule's `except`, or use tp = 1")
        elif format.packed and found is not None and found.dim == 0:
            label = f"`{name}` over tp = {ranks}: four rows of a packed weight are in one byte, and ranks have rows"
            sink.report("HYB311", span, label, "use bitnet, or tp = 1")
        elif not _fits(found, format, ranks):
            side = BLOCKS[format.recipe]
            label = f"`{name}` in fp8({format.recipe}) over tp = {ranks}: {_why(found, ranks, side)}"
            nearest = nearest or _nearest(module, ranks)
            help = f"use tp = {nearest}, a recipe with scales for rows or tensors, or `except`"
            sink.report("HYB310", span, label, help)
    _whole(module, ranks, sink)


def _whole(module: Module, ranks: int, sink: Sink) -> None:
    """Reports HYB312 for mixers that each rank computes whole, since their blocks would lie across ranks."""
    seen: set[object] = set()
    for block in module.by_name.values():
        for node in block.nodes:
            widths = block.widths(node)
            sharded = None if rule_of(block, node, ranks).name else node.op.sharded(CUT.name, widths, ranks)
            for part, text in node.formats if sharded is not None else ():
                format = parse(text)
                if sharded is None or format is None or _fits(found := _cut(sharded, part), format, ranks):
                    continue
                if (key := (node.op, node.span)) not in seen:
                    seen.add(key)
                    why = _why(found, ranks, BLOCKS[format.recipe])
                    label = f"`{node.op.kind}.{part}` in fp8({format.recipe}) over tp = {ranks}: {why}"
                    help = f"each rank computes `{node.op.kind}` whole; `except {part}`, or another recipe, cuts it"
                    sink.report("HYB312", node.span, label, help, severity="warning")


def fits(node: Node, widths: Widths, rule: Rule, ranks: int) -> bool:
    """Whether by a rule of a node's op ranks have whole blocks."""
    sharded = node.op.sharded(rule.name, widths, ranks) if rule.name else None
    formats = ((part, parse(text)) for part, text in node.formats)
    return sharded is None or all(f is None or _fits(_cut(sharded, part), f, ranks) for part, f in formats)


def has_columns(block: Block, node: Node, part: str, ranks: int) -> bool:
    """Whether ranks have columns of a projection, and so channels of its input."""
    sharded = _sharded(block, node, ranks, ranks) if ranks > 1 else None
    found = _cut(sharded, part) if sharded is not None else None
    experts = sharded is not None and part in sharded.cuts
    return found is not None and found.dim == (2 if experts else 1)


def _products(module: Module, ranks: int) -> Iterator[tuple[Node, Sharded, str, Format]]:
    """The quantized products of ops that ranks have parts of."""
    for block in module.by_name.values():
        for node in block.nodes:
            sharded = _sharded(block, node, module.axis("tp"), ranks)
            for part, text in node.formats if sharded is not None else ():
                if sharded is not None and (format := parse(text)) is not None:
                    yield node, sharded, part, format


def _sharded(block: Block, node: Node, laid: int, ranks: int) -> Sharded | None:
    """What one of `ranks` ranks computes of a node that is laid for another number of them."""
    rule = rule_of(block, node, laid)
    return node.op.sharded(rule.name, block.widths(node), ranks) if rule.name else None


def _cut(sharded: Sharded, part: str) -> Cut | None:
    """The cut of a projection's weight, which experts name without `.weight`."""
    found = sharded.cuts.get(f"{part}.weight".removeprefix("."), sharded.cuts.get(part))
    return found if found is not None and found.kind == "split" else None


def _fits(found: Cut | None, format: Format, ranks: int) -> bool:
    side = BLOCKS.get(format.recipe)
    return side is None or found is None or whole_blocks(found, ranks, side)


def _why(found: Cut | None, ranks: int, side: int) -> str:
    """Why a rank's part is not of whole blocks."""
    assert found is not None
    for part, copies in zip(found.parts, found.copies or (1,) * len(found.parts), strict=True):
        size = -(-part * copies // ranks)
        if size % side:
            return f"a rank has {size} of {part} channels, which are not whole blocks of {side}"
    return f"blocks of {side} lie across the projections of {', '.join(map(str, found.parts))} channels that are fused"


def _nearest(module: Module, ranks: int) -> int:
    """The nearest number of ranks, the smaller of two, that the model's ops and all its blocks allow."""
    return min((n for n in range(1, 2 * ranks) if n != ranks and _works(module, n)), key=lambda n: (abs(n - ranks), n))


def _works(module: Module, ranks: int) -> bool:
    if ranks == 1:
        return True
    for block in module.blocks:
        for node in block.nodes:
            if not all(s.fits(ranks) for s in node.op.splits(block.widths(node)) if s.axis == "tp"):
                return False
    return all(_fits(_cut(sharded, part), format, ranks) for _, sharded, part, format in _products(module, ranks))
