"""Parameters and floating point operations, as pure functions of the typed IR."""

from __future__ import annotations

from dataclasses import dataclass

from hybridc.ir.graph import Block, Module, Node
from hybridc.passes.analysis.memory import block_activations, node_cache


@dataclass(frozen=True)
class Row:
    """One line of a cost table: an op of a block, or a block's total (`op` is ""), for one layer.

    `count` is how many layers the block stands for, `parameters` those of one weight set, `sets` how many there are;
    `all_parameters` are those of all layers together.
    FLOPs are forward, per token at the given length; bytes are for the given batch and length.
    """

    block: str
    op: str
    kind: str
    count: int
    sets: int
    parameters: int
    all_parameters: int
    flops_per_token: float
    activation_bytes: float
    cache_bytes: float


def block_parameters(block: Block) -> int:
    """Elements of a block's parameters, tied tensors counted where they live."""
    return sum(p.numel for _, p in block.params() if not p.tied)


def parameter_count(module: Module) -> int:
    """Elements of all parameters; shared weight sets and tied tensors once."""
    blocks = [module.by_name[name] for name in module.counts]
    layers = sum(p.numel * module.copies(b, node, p) for b in blocks for node, p in b.params() if not p.tied)
    return block_parameters(module.embed) + layers + block_parameters(module.head)


def flops_per_token(module: Module, seq: int) -> float:
    """Forward operations per token of rows of `seq` tokens; a multiply-add counts as two."""
    total = 0.0
    for name, count in (("embed", 1), *module.counts.items(), ("head", 1)):
        block = module.by_name[name]
        total += count * sum(n.op.flops(block.widths(n), seq) for n in block.nodes)
    return total


def _sizes(module: Module, block: Block, node: Node) -> tuple[int, int]:
    """Parameters of an op in one weight set, and in all layers."""
    params = [p for p in block.params_of(node) if not p.tied]
    ends = block.name not in module.counts
    return sum(p.numel for p in params), sum(p.numel * (1 if ends else module.copies(block, node, p)) for p in params)


def block_table(module: Module, *, batch: int = 1, seq: int = 2048) -> list[Row]:
    """Rows for the embedding, each distinct block in order of first occurrence, and the head; the total of a block
    first."""
    rows: list[Row] = []
    sets = module.weight_sets
    for name, count in (("embed", 1), *module.counts.items(), ("head", 1)):
        block = module.by_name[name]
        inner = [
            Row(
                name,
                node.path or type(node.op).kind,
                type(node.op).kind,
                count,
                sets.get(name, 1),
                *_sizes(module, block, node),
                node.op.flops(block.widths(node), seq),
                saved,
                node_cache(block, node, module.dtype, batch=batch, length=seq),
            )
            for node, saved in block_activations(block, module.dtype, batch=batch, seq=seq)
        ]
        rows.append(
            Row(
                name,
                "",
                block.title or name,
                count,
                sets.get(name, 1),
                sum(r.parameters for r in inner),
                sum(r.all_parameters for r in inner),
                sum(r.flops_per_token for r in inner),
                sum(r.activation_bytes for r in inner),
                sum(r.cache_bytes for r in inner),
            )
        )
        rows += inner
    return rows
