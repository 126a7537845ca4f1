"""infer: types of all values, derived attributes, and everything about shapes that can be wrong."""

from __future__ import annotations

import dataclasses

from hybridc.diagnostics import Sink, did_you_mean
from hybridc.ir.emit import Emit
from hybridc.ir.graph import Block, Layer, Module, Node
from hybridc.ir.ops import Check
from hybridc.ir.ops.embedding import Embedding, LMHead
from hybridc.ir.types import DType, TensorType, tokens


def infer(module: Module, sink: Sink) -> Module:
    """Give every value its type and every op its derived attributes, walking the residual stream from ids to logits.

    In: any verified module, typed or not. Out: the same with types; a block that meets streams of several widths is
    specialised, one block a width. Reports HYB2xx where shapes do not work out. Changes no number.
    """
    embed = _block(module.embed, {"ids": tokens()}, module.dtype, sink)
    start = embed.types.get(embed.result) if embed else None
    if embed is None or start is None:
        return module
    made: dict[tuple[str, TensorType], Block | None] = {}
    names = {b.name for b in module.blocks}

    def run(layers: tuple[Layer, ...], stream: TensorType) -> tuple[list[Layer], TensorType]:
        out: list[Layer] = []
        for layer in layers:
            key = (layer.block, stream)
            if key not in made:
                source = module.by_name[layer.block]
                if any(k[0] == layer.block for k in made):
                    n = 2
                    while f"{layer.block}_{n}" in names:
                        n += 1
                    names.add(f"{layer.block}_{n}")
                    source = dataclasses.replace(source, name=f"{layer.block}_{n}")
                assert start is not None
                made[key] = _block(source, {"x": stream, "x0": start}, module.dtype, sink)
            block = made[key]
            if block is None:
                return out, stream
            out.append(dataclasses.replace(layer, block=block.name))
            stream = block.types[block.result]
        return out, stream

    layers, stream = run(module.layers, start)
    mtp, _ = run(module.mtp, stream)
    head = _block(module.head, {"x": stream}, module.dtype, sink)
    if head is None or len(layers) != len(module.layers) or len(mtp) != len(module.mtp):
        return module
    blocks = tuple(b for b in made.values() if b is not None)
    out = dataclasses.replace(module, embed=embed, blocks=blocks, layers=tuple(layers), mtp=tuple(mtp), head=head)
    _shared(out, sink)
    _ends(out, sink)
    return out


def _block(block: Block, types: dict[str, TensorType], dtype: DType, sink: Sink) -> Block | None:
    """The block with types, or None where one could not be found."""
    args = tuple(dataclasses.replace(a, type=types[a.name]) for a in block.args)
    known = {a.name: a.type for a in args if a.type is not None}
    before = len(sink.errors)
    nodes: list[Node] = []
    for node in block.nodes:
        operands = tuple(known[o] for o in node.operands)
        check = Check(sink, node.span, dict(node.spans))
        if not _ids_meet_embedding(node, operands, sink):
            return None
        op = node.op.resolve(tuple(t.width for t in operands), check)
        if len(sink.errors) > before:
            # further ops would be judged against a width that nobody asked for
            return None
        result = dataclasses.replace(op.result(operands), dtype=dtype)
        known[node.name] = result
        nodes.append(dataclasses.replace(node, op=op, type=result))
    return dataclasses.replace(block, args=args, nodes=tuple(nodes))


def _ids_meet_embedding(node: Node, operands: tuple[TensorType, ...], sink: Sink) -> bool:
    kind, is_embedding = type(node.op).kind, isinstance(node.op, Embedding)
    if is_embedding and operands[0].dtype is not DType.INT64:
        sink.report(
            "HYB208", node.span, "an embedding reads token ids, not activations", "use it first in `embed` only"
        )
        return False
    if not is_embedding and any(t.dtype is DType.INT64 for t in operands):
        sink.report("HYB208", node.span, f"`{kind}` would read token ids", "start `embed` with an embedding")
        return False
    return True


def _shared(module: Module, sink: Sink) -> None:
    """One weight set has one block: its occurrences meet streams of one width."""
    seen: dict[str, str] = {}
    for layer in module.layers:
        if layer.weights and seen.setdefault(layer.weights, layer.block) != layer.block:
            label = "occurrences that share one weight set meet streams of different widths"
            help = "give the block back the width that it takes, or do not share it"
            sink.report("HYB135", module.by_name[layer.block].span, label, help)
            return


def _ends(module: Module, sink: Sink) -> None:
    """The head: one lm_head at the end, tied to an embedding of its size."""
    embeddings = [n for n in module.embed.nodes if isinstance(n.op, Embedding)]
    heads = [n for n in module.head.nodes if isinstance(n.op, LMHead)]
    if not heads or module.head.result != heads[-1].name:
        sink.report(
            "HYB209", module.head.span, "the head does not end in `lm_head`", "write `head = ... >> lm_head(vocab)`"
        )
        return
    for block in (module.embed, *module.blocks):
        for node in block.nodes:
            if isinstance(node.op, LMHead):
                sink.report(
                    "HYB209", node.span, "`lm_head` stands inside a block", "move it to `head`, or use `linear`"
                )
    for block in (module.embed, module.head):
        for node in block.nodes:
            body = node.op.body(block.widths(node), Emit())
            if body is not None and "ctx" in body.args:
                label = f"`{type(node.op).kind}` stands in `{block.name}`, where there is no cache and no document"
                sink.report("HYB213", node.span, label, "put it in a block and name that in `layers`")
    for node in heads:
        op, span = node.op, dict(node.spans)
        assert isinstance(op, LMHead)
        rows = embeddings[0].op
        assert isinstance(rows, Embedding)
        width = module.head.widths(node)[0]
        if op.tied and (rows.vocab, rows.dim) != (op.vocab, width):
            sink.report(
                "HYB210",
                span.get("tied", node.span),
                f"the head is [{op.vocab}, {width}], the embedding [{rows.vocab}, {rows.dim}]: one tensor cannot be "
                f"both",
                "make both the same size, or leave out tied",
            )
        elif rows.vocab != op.vocab:
            sink.report(
                "HYB211",
                span.get("vocab", node.span),
                f"the head has {op.vocab} logits for an embedding of {rows.vocab} ids",
                did_you_mean(str(op.vocab), [str(rows.vocab)]),
                severity="warning",
            )
