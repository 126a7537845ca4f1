"""Layers that differ in numbers alone are of one emitted class, and compute what classes of their own would."""

import re

import torch

import hybridc
from hybridc.codegen.loader import load_source

SPEC = """model m {
  param dim = 16
  block L { x += rmsnorm() >> (BODY) }
  block M { x += rmsnorm() >> swiglu(8) }
  embed = embedding(12)
  layers = PATTERN
  head = lm_head(12)
}
"""


def emitted(body, pattern="(L L M) * 2"):
    return hybridc.compile(SPEC.replace("BODY", body).replace("PATTERN", pattern)).source["model.py"]


def test_one_class_for_all_layers():
    code = emitted("lightning_attention(heads=2, slope_scale=1 - layer / 8)")
    assert re.findall(r"^class (\w+)\(", code, re.MULTILINE) == [
        *("Embed", "LLightningAttention", "L", "MSwiglu", "M", "Head", "Model")
    ]
    assert re.findall(r"L\(slope_scale=([\d.]+)\)", code) == ["1.0", "0.875", "0.625", "0.5"]


def test_two_ops_of_a_block_have_a_name_each():
    code = emitted("a: lightning_attention(heads=2, slope_scale=1 / (layer + 1)) | b: "
                   "lightning_attention(heads=2, slope_scale=layer + 1)", "L * 2")  # fmt: skip
    assert "L(a_slope_scale=1.0, b_slope_scale=1.0), L(a_slope_scale=0.5, b_slope_scale=2.0)" in code
    assert "def __init__(self, a_slope_scale, b_slope_scale):" in code


def test_equal_layers_take_nothing():
    assert "slope_scale=" not in re.sub(r'""".*?"""', "", emitted("lightning_attention(heads=2)"), flags=re.DOTALL)


def test_other_differences_make_other_classes():
    code = emitted("lightning_attention(heads=2, slope_scale=layer + 1, chunk=16 * (layer + 1))", "L * 2")
    assert "L(" in code and "L_2(" in code


def test_numbers_are_those_of_classes_of_their_own():
    body = "lightning_attention(heads=2, slope_scale=SCALE)"
    one = load_source("m", emitted(body.replace("SCALE", "1 - layer / 8"), "L * 3")).Model()
    apart = "".join(f"block L{i} {{ x += rmsnorm() >> {body.replace('SCALE', str(1 - i / 8))} }}\n" for i in range(3))
    spec = SPEC.replace("block L { x += rmsnorm() >> (BODY) }", apart).replace("PATTERN", "L0 L1 L2")
    other = hybridc.compile(spec).load(init=False)
    one.init_weights(0)
    other.load_state_dict(one.state_dict())
    ids = torch.randint(12, (2, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(one(ids).logits, other(ids).logits)
