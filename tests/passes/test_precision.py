"""Which projections a rule reaches, and what becomes of blocks whose layers differ."""

import pytest

import hybridc
from hybridc.ir.text import parse_module, print_module

SPEC = """model m {
  param dim = 16
  let norm = rmsnorm()
  block H {
    x += norm >> attn: attention(heads=2, qk_norm=rmsnorm())
    x += norm >> moe(experts=2, hidden=8, top_k=1, shared=8)
    x += norm >> linear(16)
  }
  embed = embedding(32, dim)
  layers = H * 3
  head = norm >> lm_head(32)
}
precision { RULES }
"""


def formats(rules):
    """The projections in bitnet of each layer, and those of the head."""
    module = hybridc.compile(SPEC.replace("RULES", rules)).ir
    assert parse_module(print_module(module)) == module
    blocks = [module.by_name[layer.block] for layer in module.layers]
    out = [{f"{n.path}.{p}".rstrip(".") for n in b.nodes for p, f in n.formats if f == "bitnet"} for b in blocks]
    return out, {n.path for n in module.head.nodes if n.formats}, len(module.blocks)


EVERYTHING = {
    *("attn.qkv", "attn.out", "moe.shared.gate_up", "moe.shared.down", "linear"),
    *("moe.experts.gate_up", "moe.experts.down"),
}


@pytest.mark.parametrize(
    ("rules", "layers", "head", "kinds"),
    [
        ("bitnet on layers.**", [EVERYTHING] * 3, set(), 1),
        ("bitnet on **", [EVERYTHING] * 3, set(), 1),
        ("bitnet on lm_head", [set()] * 3, {"lm_head"}, 1),
        ("bitnet on layers[1:2].attn", [set(), {"attn.qkv", "attn.out"}, set()], set(), 2),
        ("bitnet on layers.** except attn", [EVERYTHING - {"attn.qkv", "attn.out"}] * 3, set(), 1),
        ("bitnet on layers.**\n bf16 on attn.out", [EVERYTHING - {"attn.out"}] * 3, set(), 1),
        ("bitnet on norm, router", [set()] * 3, set(), 1),
    ],
)
def test_reach(rules, layers, head, kinds):
    assert formats(rules) == (layers, head, kinds)


def test_emitted_code_has_one_class_for_each_format():
    code = hybridc.compile(SPEC.replace("RULES", "bitnet on layers[0].linear")).source["model.py"]
    assert code.count("ops.BitLinear(16, 16") == 1 and "(H,) + (H_2,) * 2" in code


def test_shared_weights_have_one_format():
    text = SPEC.replace("block H", "shared block H").replace("RULES", "bitnet on layers[1].attn")
    assert [d.code for d in hybridc.check(text).errors] == ["HYB307"]
