"""expand: layers that came out the same share one block."""

from __future__ import annotations

import dataclasses

from hybridc.diagnostics import Sink
from hybridc.ir.graph import Block, Layer, Module


def expand(module: Module, sink: Sink) -> Module:
    """Merge blocks that differ in name only, and name the survivors `A`, `A_2`, ...

    In: one block for each distinct way in which the layer pattern wrote an occurrence (arguments, layer index). Out:
    one
    block for each distinct computation, so that later passes work per block and not per layer. Changes no number.
    """
    first: dict[tuple[object, ...], Block] = {}
    renamed: dict[str, str] = {}
    used = {layer.block for layer in (*module.layers, *module.mtp)}
    taken: set[str] = set()
    for block in module.blocks:
        if block.name not in used:
            continue
        stem = block.title.partition("(")[0] or block.name
        key = (stem, block.args, block.nodes, block.result)
        if key not in first:
            name, n = stem, 1
            while name in taken:
                n += 1
                name = f"{stem}_{n}"
            taken.add(name)
            first[key] = dataclasses.replace(block, name=name)
        renamed[block.name] = first[key].name

    def rename(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(dataclasses.replace(layer, block=renamed[layer.block]) for layer in layers)

    sets: dict[str, str] = {}
    layers, mtp = rename(module.layers), rename(module.mtp)
    for layer in layers:
        if layer.weights and sets.setdefault(layer.weights, layer.block) != layer.block:
            span = next(b.span for b in module.blocks if renamed.get(b.name) == layer.block)
            sink.report(
                "HYB135",
                span,
                "occurrences that share one weight set differ in their arguments",
                "give shared occurrences the same arguments, or use a block that is not shared",
            )
            break
    return dataclasses.replace(module, blocks=tuple(first.values()), layers=layers, mtp=mtp)
