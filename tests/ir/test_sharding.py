"""What ranks have of an op's parameters: the shapes of the op of one rank, and together the whole."""

import math

import pytest
import torch

import hybridc
from hybridc.passes.collectives import localize
from hybridc.runtime.parallel.shards import first, split, whole
from tests.equivalence.cases import DIM, SUBLAYERS


def compiled(part, ranks):
    text = f"""model m {{
  param dim = {DIM}
  block A {{ x += {part} }}
  embed = embedding(45, dim)
  layers = A
  head = lm_head(45)
}}
"""
    return hybridc.compile(text, mesh={"tp": ranks})


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("part", SUBLAYERS)
def test_ranks_have_all_of_every_parameter(part, ranks):
    made = compiled(part, ranks)
    local = localize(made.ir)
    with torch.device("meta"):
        net = made.load(init=False)
    shapes = {n: tuple(p.shape) for n, p in net.named_parameters()}
    for name, prefix in ((made.ir.embed.name, "embed"), ("A", "layers.0"), (made.ir.head.name, "head")):
        params = zip(made.ir.by_name[name].params(), local.by_name[name].params(), strict=True)
        for (node, param), (_, part_of) in params:
            assert shapes[f"{prefix}.{node.path}.{param.name}"] == part_of.shape
            assert part_of.fill == param.fill  # it starts as the whole one does
            shard = runtime_shard(part_of.cut)
            assert shard.shape(part_of.shape, ranks) == param.shape
            numbered = torch.arange(math.prod(param.shape)).view(param.shape)
            pieces = [shard.take(numbered, rank, ranks) for rank in range(ranks)]
            assert all(tuple(p.shape) == part_of.shape for p in pieces)
            assert torch.equal(shard.join(pieces), numbered)
            counted = sum(p.numel() for r in range(ranks) for p in shard.owned(pieces[r], r, ranks))
            fillers = counted - param.elements  # of a vocabulary that ranks do not divide
            assert 0 <= fillers < ranks * max(1, param.elements // param.shape[0])


def runtime_shard(cut):
    """What emitted tables say of a cut."""
    if cut.kind == "split":
        return split(*cut.parts, dim=cut.dim, copies=cut.copies)
    return first() if cut.kind == "first" else whole()


def test_heads_stay_whole():
    """Rank 2 of 4 has the second of two key heads, and so has rank 3."""
    local = localize(compiled("attention(heads=4, kv_heads=2, head_dim=8)", 4).ir)
    params = {p.name: p for _, p in local.by_name["A"].params()}
    cut = params["qkv.weight"].cut
    assert cut.parts == (32, 16, 16) and cut.copies == (1, 2, 2)
    rows = torch.arange(64)
    assert split(*cut.parts, copies=cut.copies).take(rows, 3, 4).tolist() == [
        *range(24, 32), *range(40, 48), *range(56, 64)
    ]  # fmt: skip
