"""Ops of a block never stand on each other or on a line that runs past them."""

from __future__ import annotations

import pytest

import hybridc
from hybridc.ir.graph import Block
from hybridc.report.layout import grid

BODIES = {
    "residual": "x += rmsnorm() >> attention(heads=4)\n x += rmsnorm() >> swiglu(64)",
    "parallel": "x += rmsnorm() >> (attention(heads=4) | mamba2(heads=4) >> scale(0.3) | linear(64))",
    "replaced": "x = rmsnorm() >> linear(64)",
    "embedding": "x += rmsnorm() >> linear(64)\n x += concat(x, x0) >> linear(64)",
    "named": "t = rmsnorm() >> linear(64)\n x += t * (rmsnorm() >> linear(64))\n x += 0.5 * t",
}


def block_of(body: str) -> Block:
    spec = f"model m {{ block H {{\n{body}\n}}\n embed = embedding(9, 64)\n layers = H\n head = lm_head(9) }}"
    return hybridc.compile(spec).ir.by_name["H"]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_places(body: str) -> None:
    block = block_of(body)
    lay = grid(block)
    assert set(lay.place) == {a.name for a in block.args} | {n.name for n in block.nodes}
    assert len(set(lay.place.values())) == len(lay.place)
    for node in block.nodes:
        row, column = lay.place[node.name]
        assert row < lay.rows and column < lay.columns
        for operand in node.operands:
            assert lay.place[operand][0] < row


def test_the_stream_runs_straight_down() -> None:
    block = block_of(BODIES["residual"])
    adds = [n.name for n in block.nodes if type(n.op).kind == "add"]
    assert [grid(block).place[name][1] for name in ["x", *adds]] == [0, 0, 0]


def test_parallel_branches_stand_beside_each_other() -> None:
    block = block_of(BODIES["parallel"])
    place = grid(block).place
    columns = [place[n.name][1] for n in block.nodes if n.path in ("attention", "mamba2", "linear")]
    assert len(set(columns)) == 3 and 0 not in columns
