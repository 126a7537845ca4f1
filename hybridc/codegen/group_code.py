"""Nodes that one generated kernel computes, as its call."""

from __future__ import annotations

from collections.abc import Mapping

from hybridc.ir.emit import Code, call
from hybridc.ir.graph import Block, Node
from hybridc.ir.ops.basic import Add, Scale
from hybridc.ir.ops.quantize import Quantize


def outside(members: tuple[Node, ...]) -> list[str]:
    """The values that a group reads and does not make, in the order in which its kernel takes them: what is added
    before what it is added to."""
    scale, add, other = parts(members)
    made = {n.name for n in members}
    read = [o for n in (scale, other) if n is not None for o in n.operands if o not in made]
    if add is None:
        return read
    rest = [o for o in reversed(add.operands) if o not in made]
    return [*read, *rest]


def results(members: tuple[Node, ...]) -> list[Node]:
    """The nodes whose values a kernel gives: the sum that it stores for others, and the last one."""
    _, add, other = parts(members)
    first = add is not None and other is not None and add.name in other.operands
    return [add, members[-1]] if first and add is not None else [members[-1]]


def parts(members: tuple[Node, ...]) -> tuple[Node | None, Node | None, Node | None]:
    """The `scale`, the sum, and the op that is neither these nor a `quantize`."""
    scale = next((n for n in members if isinstance(n.op, Scale)), None)
    add = next((n for n in members if isinstance(n.op, Add)), None)
    other = next((n for n in members if not isinstance(n.op, (Scale, Add, Quantize))), None)
    return scale, add, other


def kernel_call(block: Block, kernel: str, members: tuple[Node, ...], codes: Mapping[str, Code]) -> str:
    """The call of a group's kernel, `kernel` with its number in the block, on the texts of values."""
    scale, _, other = parts(members)
    options: dict[str, object] = {}
    weights: list[str] = []
    if scale is not None and isinstance(scale.op, Scale):
        options["factor"] = scale.op.factor
    if other is not None:
        widths = block.widths(other)
        weights = [f"self.{other.path}.{p.name}" for p in other.op.params(widths)]
        options |= next(k.options() for k in other.op.kernels(widths) if not k.part)
    given = [codes[o].text for o in outside(members)]
    return call(f"kernels.{kernel.rpartition('.')[0]}", *given, *weights, **options)
