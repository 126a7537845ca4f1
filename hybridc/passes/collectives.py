"""collectives: each `redistribute` becomes the collective that does it; localize: what one rank computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hybridc.diagnostics import Sink
from hybridc.ir.graph import Block, Module, Node
from hybridc.ir.ops.base import Op
from hybridc.ir.ops.collectives import Redistribute
from hybridc.ir.packed import stored
from hybridc.ir.places import REPLICATED
from hybridc.ir.sharding import SAME, SUMMED, Rule
from hybridc.ir.types import TensorType


def collectives(module: Module, sink: Sink) -> Module:
    """Puts an all-gather, reduce-scatter, all-reduce, all-to-all or local slice in place of each `redistribute`, with
    the bytes that a rank sends for a token. In and out: modules with layouts. Changes no number."""
    sizes = {a.name: a.size for a in module.mesh}

    def lowered(block: Block, node: Node) -> Node:
        op = node.op
        if not isinstance(op, Redistribute):
            return node
        return replace(node, op=op.lowered(block.types[node.operands[0]], sizes[op.axis]))

    return _each(module, lambda block: replace(block, nodes=tuple(lowered(block, n) for n in block.nodes)))


def localize(module: Module) -> Module:
    """The module that one rank of the tensor-parallel axis computes: ops and widths of its sizes, and which parts of
    the parameters it has. In: a module with layouts and collectives; out: what code is emitted from."""
    ranks = module.axis("tp")
    return module if ranks == 1 else _each(module, lambda block: _local(block, ranks))


def _each(module: Module, change: Callable[[Block], Block]) -> Module:
    made = {name: change(block) for name, block in module.by_name.items()}
    return replace(
        module,
        embed=made[module.embed.name],
        blocks=tuple(made[b.name] for b in module.blocks),
        head=made[module.head.name],
    )


def _local(block: Block, ranks: int) -> Block:
    nodes = tuple(_rank(block, node, ranks) for node in block.nodes)
    return replace(block, nodes=nodes)


def _rank(block: Block, node: Node, ranks: int) -> Node:
    """A node as one rank computes it."""
    widths, op = block.widths(node), node.op
    type = _narrowed(node.type, ranks)
    rule = rule_of(block, node, ranks)
    sharded = op.sharded(rule.name, widths, ranks) if rule.name else None
    whole = SAME if rule.gives == REPLICATED and not rule.name else SUMMED
    made: Op = sharded.op if sharded is not None else op
    local_widths = widths if sharded is None or sharded.ins is None else sharded.ins
    given = sharded.cuts if sharded is not None else {}
    shapes = {p.name: p.shape for p in stored(made, local_widths, dict(node.formats))}
    held = tuple(replace(p, shape=shapes[p.name], cut=given.get(p.name, whole)) for p in block.params_of(node))
    # a norm over ranks has no kernel
    parts = {k.part for k in made.kernels(local_widths)} if sharded is not None else set()
    inner = tuple(pair for pair in node.inner if pair[0] in parts) if sharded is not None else node.inner
    return replace(node, op=made, type=type, held=held, inner=inner)


def rule_of(block: Block, node: Node, ranks: int) -> Rule:
    """The rule by which the layout pass has laid a node."""
    places = tuple(block.types[o].place("tp") for o in node.operands)
    gives = node.type.place("tp") if node.type is not None else REPLICATED
    found = (r for r in node.op.rules(block.widths(node), ranks) if r.takes == places and r.gives == gives)
    return next(found, Rule("", places, gives))


def _narrowed(type: TensorType | None, ranks: int) -> TensorType | None:
    """The type of what one rank has; widths that do not divide are filled up."""
    if type is None or type.place("tp").kind != "split" or type.place("tp").dim != len(type.dims) - 1:
        return type
    return type.with_width(-(-type.width // ranks))
