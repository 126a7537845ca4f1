"""Blocks that differ in numbers alone: their layers are of one emitted class, which is given these numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybridc.ir.emit import lit
from hybridc.ir.graph import Block, Module, Node

Names = dict[tuple[str, str], str]
"""Arguments of a class: the path of an op and its attribute, and what the argument is called."""


@dataclass(frozen=True)
class Shared:
    """The class of a block: that of the block `name`, whose constructor takes `arguments`; `values` are this one's."""

    name: str
    arguments: Names
    values: tuple[float, ...]

    def call(self) -> str:
        """The expression that makes a layer."""
        pairs = zip(self.arguments.values(), self.values, strict=True)
        return f"{self.name}({', '.join(f'{name}={lit(value)}' for name, value in pairs)})"


def classes(module: Module) -> dict[str, Shared]:
    """The class of each block by the block's name.

    Those that the spec wrote as one block share it where all that tells them apart are attributes that their ops take
    at run time (`layerwise`). Blocks with shared weights have classes of their own, since each set is made once.
    """
    tied = {layer.block for layer in module.layers if layer.weights}
    groups: dict[object, list[Block]] = {}
    for block in module.blocks:
        alike = (block.title, block.args, tuple(map(_without, block.nodes)), block.result)
        groups.setdefault(block.name if block.name in tied else alike, []).append(block)
    out = {}
    for blocks in groups.values():
        arguments = _differing(blocks)
        for block in blocks:
            nodes = {n.path: n for n in block.nodes}
            values = tuple(getattr(nodes[path].op, name) for path, name in arguments)
            out[block.name] = Shared(blocks[0].name, arguments, values)
    return out


def _without(node: Node) -> Node:
    """The node with 1 in place of what its op takes at run time."""
    return replace(node, op=replace(node.op, **dict.fromkeys(type(node.op).layerwise, 1.0)))


def _differing(blocks: list[Block]) -> Names:
    """The attributes in which the blocks differ, by the names that they have as arguments."""
    found = [
        (nodes[0].path, name)
        for nodes in zip(*(b.nodes for b in blocks), strict=True)
        for name in type(nodes[0].op).layerwise
        if len({getattr(n.op, name) for n in nodes}) > 1
    ]
    names = [name for _, name in found]
    return {
        (path, name): name if names.count(name) == 1 else f"{path.replace('.', '_')}_{name}" for path, name in found
    }
