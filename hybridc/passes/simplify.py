"""simplify: common subexpressions and dead code."""

from __future__ import annotations

import dataclasses

from hybridc.diagnostics import Sink
from hybridc.ir.graph import Block, Module, Node


def simplify(module: Module, sink: Sink) -> Module:
    """Compute each parameterless value once, drop what no result needs, number the values that are left.

    In and out: typed modules. An op with parameters is never merged (two norms of one value have two weights); one
    whose
    result is not used is dropped with its parameters. Changes no number.
    """
    clean = {name: _block(block) for name, block in module.by_name.items()}
    return dataclasses.replace(
        module,
        embed=clean[module.embed.name],
        blocks=tuple(clean[b.name] for b in module.blocks),
        head=clean[module.head.name],
    )


def _block(block: Block) -> Block:
    seen: dict[tuple[object, ...], str] = {}
    alias: dict[str, str] = {}
    kept: list[Node] = []
    for node in block.nodes:
        operands = tuple(alias.get(o, o) for o in node.operands)
        key = (type(node.op), node.op, operands)
        if not node.path and key in seen:
            alias[node.name] = seen[key]
            continue
        if not node.path:
            seen[key] = node.name
        kept.append(dataclasses.replace(node, operands=operands))
    result = alias.get(block.result, block.result)
    live = {result}
    for node in reversed(kept):
        if node.name in live:
            live.update(node.operands)
    kept = [n for n in kept if n.name in live]
    number = {n.name: str(i) for i, n in enumerate(kept)}
    nodes = tuple(
        dataclasses.replace(n, name=number[n.name], operands=tuple(number.get(o, o) for o in n.operands)) for n in kept
    )
    args = tuple(a for a in block.args if a.name in ("x", "ids") or a.name in live)
    return dataclasses.replace(block, args=args, nodes=nodes, result=number.get(result, result))
