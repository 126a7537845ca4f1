"""Bytes of weights, of what the forward keeps for the backward, and of caches, as pure functions of the typed IR."""

from __future__ import annotations

from hybridc.ir.graph import Block, Module, Node
from hybridc.ir.ops.base import Param
from hybridc.ir.types import DType


def node_cache(block: Block, node: Node, dtype: DType, *, batch: int, length: int) -> float:
    """Bytes of an op's cache for `batch` sequences of `length` tokens; recurrent states are fp32."""
    parts = node.op.cache(block.widths(node), length)
    return float(sum(batch * p.elements * (4 if p.fp32 else dtype.bytes) for p in parts))


def block_activations(block: Block, dtype: DType, *, batch: int, seq: int) -> list[tuple[Node, float]]:
    """Bytes that each op of a block keeps for its backward, without recomputation."""
    return [(n, batch * seq * n.op.saved(block.widths(n), seq) * dtype.bytes) for n in block.nodes]


def cache_bytes(module: Module, *, batch: int, length: int) -> float:
    """Bytes of the whole model's cache."""
    return sum(
        count * node_cache(module.by_name[name], node, module.dtype, batch=batch, length=length)
        for name, count in module.counts.items()
        for node in module.by_name[name].nodes
    )


def activation_bytes(module: Module, *, batch: int, seq: int) -> float:
    """Bytes that one forward keeps for its backward, without recomputation."""
    return sum(
        count * bytes
        for name, count in (("embed", 1), *module.counts.items(), ("head", 1))
        for _, bytes in block_activations(module.by_name[name], module.dtype, batch=batch, seq=seq)
    )


def weight_bytes(module: Module) -> float:
    """Bytes of all parameters in the model's dtype, those that stay fp32 in four each, packed ones as they are."""

    def of(param: Param) -> int:
        bytes = 1 if param.packs else 4 if param.fp32 else module.dtype.bytes
        return 0 if param.tied else param.elements * bytes

    blocks = [module.by_name[name] for name in module.counts]
    layers = sum(of(p) * module.copies(b, node, p) for b in blocks for node, p in b.params())
    return float(layers + sum(of(p) for b in (module.embed, module.head) for _, p in b.params()))
