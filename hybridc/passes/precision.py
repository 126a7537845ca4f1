"""precision: number formats from rules to projections of ops, and `quantize` where a value enters products of one.

A block whose layers differ in formats is specialised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hybridc.diagnostics import NO_SPAN, Sink
from hybridc.ir.formats import Format, parse
from hybridc.ir.graph import Block, Layer, Module, Node
from hybridc.ir.ops.quantize import Quantize
from hybridc.passes.simplify import simplify

Place = tuple[int, tuple[str, ...]]
"""A module: its layer, -1 in the embedding and the head, and its path from the root."""


def assign(
    module: Module, formats: Mapping[Place, str], sink: Sink, apart: Callable[[Format], bool] = lambda _: True
) -> Module:  # fmt: skip
    """Gives each projection the format that the rules have for it.

    In: a typed module and the rules' formats by place. Out: the same computation, with quantized products where a
    format says so. Norms, routers, convolutions, embeddings and state parameters are no projections, and the head is
    one only where a rule names it (globs do not). `apart` says of a format whether its products take what is quantized
    already; those of a library may not. Reports occurrences of shared weights in different formats (HYB307).
    """
    emitted = {place: f for place, f in formats.items() if parse(f) is not None}
    if not emitted:
        return module
    made: dict[tuple[str, tuple[Node, ...]], str] = {}
    blocks: list[Block] = []
    layers: list[Layer] = []
    shared: dict[str, str] = {}
    taken = {b.name for b in module.blocks}
    for i, layer in enumerate(module.layers):
        block = module.by_name[layer.block]
        nodes = _nodes(block, ("layers", str(i)), i, emitted)
        key = (block.name, nodes)
        if key not in made:
            first = not any(name == block.name for name, _ in made)
            name, n = block.name, 1
            while not first and name in taken:
                n += 1
                name = f"{block.name}_{n}"
            taken.add(name)
            made[key] = name
            blocks.append(replace(block, name=name, nodes=nodes))
        if layer.weights and shared.setdefault(layer.weights, made[key]) != made[key]:
            label = f"layer {i} has the weights of an earlier one in another format"
            sink.report("HYB307", NO_SPAN, label, f"give all occurrences of `{block.name}` one format")
        layers.append(replace(layer, block=made[key]))
    head = replace(module.head, nodes=_nodes(module.head, ("head",), -1, emitted))
    quantized = tuple(_quantized(block, apart) for block in blocks)
    made_module = replace(module, blocks=quantized, layers=tuple(layers), head=_quantized(head, apart))
    return simplify(made_module, sink)


def _quantized(block: Block, apart: Callable[[Format], bool]) -> Block:
    """The block with a `quantize` in front of each op that reads its operand by products of one format alone.

    Ops that quantize inside stay as they are: those that read the operand otherwise too (a router), whose products are
    in several formats, or that remember scales of their own. Of several for one value simplify leaves one.
    """
    nodes: list[Node] = []
    for node in block.nodes:
        given = dict(node.formats)
        made = {parse(given.get(part, "")) for part in node.op.entries(block.widths(node))}
        formats = {format.of_input if format is not None else None for format in made}
        format = formats.pop() if len(formats) == 1 else None
        if format is not None and format.shared and apart(format):
            first, *others = node.operands
            name = f"{node.name}_quantized"
            nodes.append(Node(name, Quantize.of(format), (first,), type=block.types[first], span=node.span))
            node = replace(node, operands=(name, *others))
        nodes.append(node)
    return replace(block, nodes=tuple(nodes))


def _nodes(block: Block, prefix: tuple[str, ...], layer: int, formats: Mapping[Place, str]) -> tuple[Node, ...]:
    """The block's nodes with the formats of its projections at this layer."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node, part, path in block.projections():
        if (format := formats.get((layer, (*prefix, *path)))) is not None:
            found.setdefault(node.name, []).append((part, format))
    return tuple(replace(node, formats=tuple(found.get(node.name, ()))) for node in block.nodes)
