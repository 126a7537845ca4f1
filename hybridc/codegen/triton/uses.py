"""Which kernels a fused module launches, and in which forms."""

from __future__ import annotations

from collections.abc import Iterator

from hybridc.codegen.triton_code import Use
from hybridc.ir.graph import Block, Module
from hybridc.ir.kernels import groups
from hybridc.ir.ops.basic import Scale
from hybridc.ir.types import DType

POINTERS = {DType.FP32: "fp32", DType.BF16: "bf16", DType.FP16: "fp16"}
"""Triton's words for dtypes."""


def uses(module: Module) -> tuple[Use, ...]:
    """The forms of the kernels that `fuse` named, each once, in the order of the blocks."""
    dtype = POINTERS[module.dtype]
    found: list[Use] = []
    for block in (module.embed, *module.blocks, module.head):
        for use in (*_of_nodes(block, dtype), *_of_parts(block, dtype)):
            if use not in found:
                found.append(use)
    return tuple(found)


def _of_nodes(block: Block, dtype: str) -> Iterator[Use]:
    for kernel, members in groups(block).items():
        constants: dict[str, float | int | bool] = {}
        width, segments = block.widths(members[-1])[0], 0
        for node in members:
            if isinstance(node.op, Scale):
                constants["factor"] = node.op.factor
            for own in node.op.kernels(block.widths(node)):
                if not own.part:
                    constants |= dict(own.constants)
                    width, segments = own.width, own.segments
        yield Use(kernel.rpartition(".")[0], width, dtype, constants, segments)


def _of_parts(block: Block, dtype: str) -> Iterator[Use]:
    for node in block.nodes:
        names = dict(node.inner)
        for own in node.op.kernels(block.widths(node)):
            if own.part in names:
                yield Use(names[own.part], own.width, dtype, dict(own.constants), own.segments)
