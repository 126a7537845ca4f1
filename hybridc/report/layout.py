"""Where the ops of a block stand in its picture: rows by depth, columns by branch, the residual stream on the left."""

from __future__ import annotations

from dataclasses import dataclass

from hybridc.ir.graph import Block, Node
from hybridc.ir.ops.basic import Add


@dataclass(frozen=True)
class Grid:
    """Row and column of each value (arguments and nodes) by name; `rows` and `columns` count them."""

    place: dict[str, tuple[int, int]]
    rows: int
    columns: int


def grid(block: Block) -> Grid:
    """Lays a block out. Rows grow along every edge; an edge that skips rows has its column to itself where it runs."""
    nodes = {n.name: n for n in block.nodes}
    depth = {a.name: 0 for a in block.args}
    for node in block.nodes:
        depth[node.name] = 1 + max((depth[o] for o in node.operands), default=0)
    spine = _spine(block, nodes)
    taken: set[tuple[int, int]] = set()
    place: dict[str, tuple[int, int]] = {}
    for name in spine:
        place[name] = (depth[name], 0)
    rows = 1 + max(depth.values())
    taken |= {(row, 0) for row in range(rows)}
    for node in block.nodes:
        if node.name not in place:
            first = node.operands[0] if node.operands else ""
            row, column = place.get(first, (0, 0))
            _put(place, taken, node.name, row, depth[node.name], max(column, 1))
    for arg in block.args:
        if arg.name not in place:
            # its line runs down beside what stands there, to the first op that reads it
            last = max((depth[n.name] for n in block.nodes if arg.name in n.operands), default=1)
            column = _put(place, taken, arg.name, -1, last - 1, 1)
            place[arg.name] = (0, column)
    return Grid(place, rows, 1 + max(column for _, column in place.values()))


def _spine(block: Block, nodes: dict[str, Node]) -> list[str]:
    """From the result back to the argument that it continues: along sums to `x` where there is a residual stream."""
    on_stream = {"x"}
    for node in block.nodes:
        if isinstance(node.op, Add) and on_stream & set(node.operands):
            on_stream.add(node.name)
    out = [block.result]
    while out[-1] in nodes:
        operands = nodes[out[-1]].operands
        if not operands:
            break
        out.append(next((o for o in operands if o in on_stream), operands[0]))
    return out


def _put(
    place: dict[str, tuple[int, int]], taken: set[tuple[int, int]], name: str, above: int, row: int, column: int
) -> int:
    """Gives `name` the first column from `column` on that is free from below `above` down to `row`; returns it."""
    cells = range(min(above + 1, row), row + 1)
    while any((r, column) in taken for r in cells):
        column += 1
    taken |= {(r, column) for r in cells}
    place[name] = (row, column)
    return column
