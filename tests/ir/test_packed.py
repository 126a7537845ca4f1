"""What a net holds of projections in bitnet(packed): counted as the numbers that they stand for, stored as bytes."""

import pytest
import torch

import hybridc
from hybridc.passes.analysis.cost import block_table, parameter_count
from hybridc.passes.analysis.memory import weight_bytes

SPEC = """model m {
  param dim = 16
  let norm = rmsnorm()
  block H {
    x += norm >> attn: attention(heads=4, kv_heads=2, bias=true)
    x += norm >> moe(experts=2, hidden=8, top_k=1, shared=8)
    x += norm >> mamba2(heads=2, state=4)
    x += norm >> first: linear(18) >> linear(16)
  }
  embed = embedding(32, dim)
  layers = H * 2
  head = norm >> lm_head(32)
}
precision {
  default DTYPE
  RULES
}
"""
RULE = "bitnet(packed) on layers.** except experts"


def compiled(rules=RULE, dtype="fp32"):
    return hybridc.compile(SPEC.replace("RULES", rules).replace("DTYPE", dtype))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_analyses_are_those_of_the_net(dtype):
    plain, packed = compiled("", dtype), compiled(dtype=dtype)
    net = packed.load()
    held = dict(net.named_parameters())
    assert weight_bytes(packed.ir) == sum(p.numel() * p.element_size() for p in held.values())
    scales = sum(p.numel() for name, p in held.items() if name.endswith("weight_scale"))
    # 3 of q, k, v; 2 of gate and up; those that the mixer's in_proj has; 4 of the other projections
    assert scales == 2 * (3 + 1 + 2 + 1 + 5 + 1 + 1 + 1)
    assert parameter_count(packed.ir) == parameter_count(plain.ir) + scales
    assert sum(r.all_parameters for r in block_table(packed.ir) if r.op) == parameter_count(packed.ir)
    assert weight_bytes(packed.ir) < weight_bytes(plain.ir)


def test_the_manifest_has_bytes_and_scales():
    import json

    packed = compiled()
    listed = json.loads(packed.source["manifest.json"])["blocks"]["H"]["parameters"]
    found = {p["name"]: (p["dtype"], p["shape"]) for p in listed}
    assert found["attn.qkv.weight"] == ("uint8", [8, 16]) and found["attn.qkv.weight_scale"] == ("fp32", [3])
    assert found["first.weight"] == ("uint8", [5, 16])  # 18 rows: the last byte row is not full
    assert found["attn.qkv.bias"] == ("fp32", [32]) and found["moe.experts.down"] == ("fp32", [2, 16, 8])
    held = {name.removeprefix("layers.0."): p for name, p in packed.load().named_parameters() if "layers.0." in name}
    assert {n: list(p.shape) for n, p in held.items()} == {n: shape for n, (_, shape) in found.items()}
    assert {n for n, p in held.items() if p.dtype == torch.uint8} == {n for n, (d, _) in found.items() if d == "uint8"}


def test_initial_weights_are_ternary_and_spread_as_others():
    torch.manual_seed(0)
    text = """model m {
  param dim = 256
  block A { x += rmsnorm() >> attention(heads=4) }
  embed = embedding(8, dim)
  layers = A
  head = lm_head(8)
  INIT
}
precision { bitnet(packed) on layers.** }
"""
    for scheme, std in (("init = normal(0.05)", 0.05), ("init = kaiming()", (256**-0.5) / 3**0.5)):
        net = hybridc.compile(text.replace("INIT", scheme)).load()
        x = torch.eye(256) * 127  # each column of the weight times 127
        got = net.layers[0].attention.qkv(x) / 127
        assert got.unique().numel() == 3 and abs(got.mean()) < 0.02 * std
        assert abs(got.std() / std - 1) < 0.02
