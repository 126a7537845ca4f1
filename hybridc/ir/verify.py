"""What holds of every module, whatever pass made it. A violation is a compiler bug, not a user's mistake."""

from __future__ import annotations

from hybridc.ir.graph import Block, Module
from hybridc.ir.kernels import entangled, groups


class InvalidIR(RuntimeError):
    """A pass broke the IR; the message names the pass's output, the block and the value."""


def verify_block(block: Block) -> None:
    """SSA: each value defined once and before its use; types all there or all absent; paths unique and only where
    needed."""
    defined = {a.name for a in block.args}
    if len(defined) != len(block.args):
        raise InvalidIR(f"@{block.name}: an argument is repeated")
    paths: set[str] = set()
    for node in block.nodes:
        for operand in node.operands:
            if operand not in defined:
                raise InvalidIR(f"@{block.name}: %{node.name} uses %{operand} before it is defined")
        if node.name in defined:
            raise InvalidIR(f"@{block.name}: %{node.name} is defined twice")
        defined.add(node.name)
        wanted = type(node.op).operands
        if wanted != ("...",) and len(node.operands) != len(wanted):
            raise InvalidIR(f"@{block.name}: %{node.name} has {len(node.operands)} operands, {wanted} wanted")
        if node.path:
            if node.path in paths:
                raise InvalidIR(f"@{block.name}: two ops at path {node.path}")
            paths.add(node.path)
    for kernel, members in groups(block).items():
        if between := entangled(block, members):
            raise InvalidIR(f"@{block.name}: %{between} stands between values of {kernel}")
    if block.result not in defined:
        raise InvalidIR(f"@{block.name}: returns %{block.result}, which is not defined")
    typed = [a.type for a in block.args] + [n.type for n in block.nodes]
    if any(t is None for t in typed) and any(t is not None for t in typed):
        raise InvalidIR(f"@{block.name}: some values have types and some have none")
    if typed and typed[0] is not None:
        for node in block.nodes:
            operands = tuple(block.types[o] for o in node.operands)
            if node.type is None or node.op.result(operands).dims != node.type.dims:
                raise InvalidIR(f"@{block.name}: %{node.name} is {node.type}, its op makes {node.op.result(operands)}")
            if node.op.params(block.widths(node)) and not node.path:
                raise InvalidIR(f"@{block.name}: %{node.name} has parameters and no path")


def verify(module: Module) -> None:
    """Raises InvalidIR where the module does not hold together."""
    if len(module.by_name) != len(module.blocks) + 2:
        raise InvalidIR("two blocks have one name")
    for block in module.by_name.values():
        verify_block(block)
    for layer in (*module.layers, *module.mtp):
        if layer.block not in module.by_name:
            raise InvalidIR(f"a layer names @{layer.block}, which does not exist")
    stages = [layer.stage for layer in module.layers]
    if stages != sorted(stages):
        raise InvalidIR("pipeline stages are out of order")
    types = module.embed.types
    if module.embed.result in types:
        stream = types[module.embed.result]
        for layer in module.layers:
            block = module.by_name[layer.block]
            if block.types["x"] != stream:
                raise InvalidIR(f"@{block.name} takes {block.types['x']} where the stream is {stream}")
            stream = block.types[block.result]
        if module.head.types["x"] != stream:
            raise InvalidIR(f"@head takes {module.head.types['x']} where the stream is {stream}")
