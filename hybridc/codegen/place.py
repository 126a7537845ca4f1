"""Where in a module an op is being written, told to what it writes with."""

from __future__ import annotations

from collections.abc import Iterable

from hybridc.ir.emit import Emit
from hybridc.ir.graph import Block, Node


def enter(emit: Emit, block: Block, node: Node, given: Iterable[str] = ()) -> None:
    """Makes `emit` write a node of a block; `given` are attributes of its op that are arguments of its class."""
    kernels = {k.part: k for k in node.op.kernels(block.widths(node))}
    own = (("", node.kernel),) if node.kernel else ()
    emit.inner = {part: (name, kernels.get(part)) for part, name in (*node.inner, *own)}
    emit.path, emit.kind, emit.span = node.path, node.op.kind, node.span
    emit.formats, emit.given = dict(node.formats), frozenset(given)
    held = (p for p in node.held or () if p.cut is not None and p.cut.kind in ("split", "summed"))
    emit.shared = frozenset(p.name.removesuffix("weight").removesuffix(".") for p in held)
