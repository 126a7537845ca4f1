"""Scales over ranks: which blocks are whole there, what is refused, and what is quantized where."""

import random
import re

import pytest

import hybridc
from hybridc.ir.ops.collectives import Collective
from hybridc.ir.ops.quantize import Quantize
from hybridc.ir.places import REDUCED
from hybridc.ir.sharding import Cut, whole_blocks

SPEC = """model m {{
  param dim = {dim}
  let norm = rmsnorm()
  block A {{ {body} }}
  embed = embedding(128, dim)
  layers = A
  head = norm >> lm_head(128)
}}
precision {{ {rules} }}
"""


def spec(body, rules, dim=256):
    return SPEC.format(body=body, rules=rules, dim=dim)


def errors(body, rules, tp, dim=256):
    return [(d.code, d.label, d.help) for d in hybridc.check(spec(body, rules, dim), mesh={"tp": tp}).errors]


def by_counting(cut, ranks, side):
    """Each rank's numbers of the whole, one by one; None for fillers."""
    total = sum(cut.parts)
    for rank in range(ranks):
        mine, begin = [], 0
        for part, copies in zip(cut.parts, cut.copies or (1,) * len(cut.parts), strict=True):
            size = -(-part * copies // ranks)
            start = rank // copies * size
            mine += [begin + n if n < part else None for n in range(start, start + size)]
            begin += part
        for at in range(0, len(mine), side):
            found = [n for n in mine[at : at + side] if n is not None]
            if found and found != list(range(found[0] // side * side, min(total, found[0] // side * side + side))):
                return False
    return True


def test_whole_blocks_are_those_that_one_finds_by_counting():
    draw, found = random.Random(0), []
    for _ in range(4000):
        ranks = draw.choice((1, 2, 3, 4, 8))
        parts, copies = [], []
        for _ in range(draw.randint(1, 4)):
            copies.append(draw.choice([n for n in (1, 2, 4, 8) if ranks % n == 0]))
            parts.append(draw.choice((1, 2, 4, 6, 8, 12, 16)) * (ranks // copies[-1]))
        if len(parts) == 1:  # filled up
            parts[0] += draw.randint(0, ranks - 1)
        cut = Cut("split", 0, tuple(parts), tuple(copies))
        side = draw.choice((2, 4, 8))
        found.append(whole_blocks(cut, ranks, side))
        assert found[-1] == by_counting(cut, ranks, side), (cut, ranks, side)
    assert 500 < sum(found) < 3500


def test_experts_of_1536_over_8():
    """192 channels a rank are no whole blocks of 128; the nearest tp with whole ones is 6, with 256 each."""
    body = "x += norm >> moe(experts=8, hidden=1536, top_k=2)"
    found = errors(body, "fp8(block128) on moe", 8)
    assert [code for code, *_ in found] == ["HYB310"] * 2
    _, label, help = found[0]
    assert "experts.gate_up" in label and "192 of 1536" in label and "blocks of 128" in label
    assert help.startswith("use tp = 6,")
    assert errors(body, "fp8(block128) on moe", 6) == errors(body, "fp8(mx) on moe", 8) == []
    heads = f"{body}\n x += norm >> attention(heads=8)"
    assert errors(heads, "fp8(block128) on moe", 8)[0][2].startswith("use tp = 4,")


@pytest.mark.parametrize(
    ("body", "rules", "tp", "why"),
    [
        # fused parts: 64 rows of k and v each are one block of the whole, and so they are on a rank that has all
        ("x += norm >> attention(heads=4, head_dim=64, kv_heads=1)", "fp8(block128) on qkv", 2, ""),
        ("x += norm >> attention(heads=4, head_dim=64, kv_heads=2)", "fp8(block128) on qkv", 2, "64 of 128"),
        ("x += norm >> attention(heads=3, head_dim=128)", "fp8(block128) on qkv", 3, ""),
        ("x += norm >> swiglu(320)", "fp8(block128) on gate_up", 2, "160 of 320"),
        ("x += norm >> swiglu(320)", "fp8(mx) on mlp", 2, ""),
        ("x += norm >> linear(96) >> swiglu(64, out_dim=256)", "fp8(mx) on linear", 2, ""),  # is whole then
    ],
)
def test_parts_that_are_fused(body, rules, tp, why):
    sink = hybridc.check(spec(body, rules), mesh={"tp": tp})
    found = [(d.code, d.label, d.help) for d in sink.diagnostics]
    assert bool(found) == bool(why), found
    assert all(code in ("HYB310", "HYB312") and why in label for code, label, _ in found)


def test_the_vocabulary():
    rules = "fp8(block128) on lm_head"
    assert errors("x += norm >> swiglu(8)", rules, 2)[0][1].endswith(
        "64 of 128 channels, which are not whole blocks of 128"
    )


def test_formats_that_are_not_there_over_ranks():
    moe = "x += norm >> moe(experts=4, hidden=8, top_k=2, latent=16)"
    for rules in ("bitnet on moe", "fp8(row) on moe"):
        ((code, label, help),) = errors(moe, rules, 2)
        assert code == "HYB311" and "latent_up" in label and "except" in help
        assert errors(moe, f"{rules} except latent_up", 2) == []
    assert errors(moe, "bitnet on moe", 1) == []
    ((code, label, _),) = errors("x += norm >> swiglu(8)", "bitnet(packed) on mlp", 2)
    assert code == "HYB311" and "gate_up" in label


@pytest.mark.parametrize("format", ["bitnet", "fp8(row)", "fp8(delayed)"])
def test_what_is_quantized_is_whole(format):
    """No quantized value is moved, and products that are not cut read neither parts of tokens nor of sums."""
    body = "t = norm\n x += t >> (attention(heads=4) | linear(37) >> linear(256) | scale(0.5) >> linear(256))"
    module = hybridc.compile(spec(body, f"{format} on layers.**"), mesh={"tp": 2}).ir
    (block,) = module.blocks
    made = {n.name for n in block.nodes if isinstance(n.op, Quantize)}
    assert bool(made) == (format != "fp8(delayed)")
    for node in block.nodes:
        assert not (isinstance(node.op, Collective) and made & set(node.operands))
        if node.name in made:
            assert block.types[node.operands[0]].place("tp") == node.type.place("tp") == REDUCED
        if node.formats:
            places = {block.types[o].place("tp") for o in node.operands}
            assert all(p.kind != "partial" and (p.kind, p.dim) != ("split", 1) for p in places), node


KERNELS = """x += norm >> attention(heads=4, head_dim=128, kv_heads=4, gated=true)
 x += norm >> swiglu(512)
 x += norm >> moe(experts=4, hidden=512, top_k=2)
 x += norm >> mla(heads=4, kv_rank=128, nope_dim=64, rope_dim=64, q_rank=128, norm=norm)"""


@pytest.mark.parametrize(("format", "form"), [("bitnet", "int8_row"), ("fp8(row)", "e4m3_row")])
def test_kernels_store_no_scales_of_a_rank(format, form):
    """In front of a projection whose columns ranks have; in front of rows, which read whole tokens, they do."""
    for tp in (1, 2):
        made = hybridc.compile(spec(KERNELS, f"{format} on layers.**"), target="cuda:sm90", mesh={"tp": tp})
        inner = {part: kernel for n in made.ir.blocks[0].nodes for part, kernel in n.inner}
        for part in ("gate", "act", "experts"):
            assert inner[part].endswith(form) == (tp == 1), inner
        assert inner["q_norm"].endswith(form)


def test_kernels_store_blocks_that_are_whole():
    made = hybridc.compile(spec(KERNELS, "fp8(block128) on layers.**"), target="cuda:sm90", mesh={"tp": 2})
    inner = {part: kernel for n in made.ir.blocks[0].nodes for part, kernel in n.inner}
    assert all(inner[part].endswith("e4m3_block") for part in ("gate", "act", "experts", "q_norm"))


def test_libraries_are_not_asked_for_fp8_over_ranks():
    """Transformer Engine takes scales of what one rank has; a head that each rank has whole is none of them."""
    for tp, names in ((1, {"te.FP8Linear", "te.Experts"}), (2, {"gpu.FP8Linear", "gpu.Experts"})):
        body = "x += norm >> swiglu(512)\n x += norm >> moe(experts=4, hidden=512, top_k=2)"
        rules = "fp8(tensor) on layers.**"
        made = hybridc.compile(spec(body, rules), target="cuda:sm90", libraries=["te"], mesh={"tp": tp})
        assert set(re.findall(r"\w+\.(?:FP8Linear|Experts)", made.source["model.py"])) == names
