"""Which projections a rule reaches, and what becomes of blocks whose layers differ."""

import re

import pytest
import torch

import hybridc
from hybridc.codegen.loader import load_source
from hybridc.ir.ops import names
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


KINDS = {
    "attention": "attention(heads=2, gated=true)",
    "gated_delta_net": "gated_delta_net(heads=2, key_dim=8, value_dim=8)",
    "kda": "kda(heads=2, head_dim=8, gate_rank=4)",
    "lightning_attention": "lightning_attention(heads=2)",
    "linear": "linear(16)",
    "mamba": "mamba(state=4)",
    "mamba2": "mamba2(heads=2, state=4)",
    "mla": "mla(heads=2, kv_rank=8, q_rank=8, nope_dim=8, rope_dim=4, gated=true)",
    "mlp": "mlp(16)",
    "moe": "moe(experts=2, hidden=8, top_k=1, shared=8, latent=8)",
    "rg_lru": "rg_lru(blocks=2)",
    "short_conv": "short_conv()",
    "swiglu": "swiglu(16)",
}
"""A call of each op that has projections."""

NORMED = "let norm = rmsnorm()\n"
COUNTS = {
    # a block, the rules, and how many times a value is quantized in front of ops: worked out by hand
    "two mixers read one value": (
        "block L { x += norm >> (attention(heads=2) | mamba2(heads=2, state=4) | mamba(state=4)) }",
        "fp8(block128) on layers.**",
        1,
    ),
    "two formats, two values": (
        "block L { x += norm >> (attention(heads=2) | mamba2(heads=2, state=4)) }",
        "fp8(block128) on attention\n bitnet on mamba2",
        2,
    ),
    "a norm for each sublayer": (
        "block L { x += norm >> attention(heads=2)\n x += norm >> swiglu(16) }",
        "bitnet on layers.**",
        2,
    ),
    "what a region does not touch": (
        "block L { x += norm >> attention(heads=2)\n x += norm >> swiglu(16) }",
        "fp8(row) on swiglu",
        1,
    ),
    "a product behind a product": (
        "block L { t = norm >> linear(16) >> linear(16)\n x += t }",
        "fp8(mx) on layers.**",
        2,
    ),
    "routers read the value as it is, and tokens of an expert are quantized where they have been sorted": (
        "block L { x += norm >> (moe(experts=2, hidden=8, top_k=1) | swiglu(16)) }",
        "fp8(block128) on layers.**",
        1,
    ),
    "scales that a product remembers are not shared": (
        "block L { x += norm >> (attention(heads=2) | swiglu(16)) }",
        "fp8(delayed) on layers.**",
        0,
    ),
    "projections of one op in two formats": (
        "block L { x += norm >> mla(heads=2, kv_rank=8, nope_dim=8, rope_dim=4) }",
        "fp8(block128) on mla\n fp8(mx) on mla.q",
        0,
    ),
}


@pytest.mark.parametrize("case", COUNTS)
def test_values_are_quantized_as_rarely_as_can_be(case):
    block, rules, count = COUNTS[case]
    text = f"model m {{ param dim = 16\n {NORMED} {block}\n embed = embedding(8)\n layers = L\n head = lm_head(8) }}"
    shown = []
    module = hybridc.compile(f"{text}\nprecision {{ {rules} }}", print_after=["precision"], out=shown.append).ir
    assert parse_module(print_module(module)) == module
    assert shown == [f"// after precision\n{print_module(module)}"]
    assert sum(type(n.op).kind == "quantize" for b in module.blocks for n in b.nodes) == count


@pytest.mark.parametrize("rule", ["bitnet", "fp8(block128)", "fp8(row, bwd=e5m2)", "fp8(mx)", "fp8(tensor, fwd=e5m2)"])
def test_a_value_that_is_quantized_once_gives_the_same_numbers(rule):
    """Against the same net whose products quantize each for itself, as they do where they are given a plain tensor."""
    spec = SPEC.replace("x += norm >> linear(16)", "x += norm >> (linear(16) | swiglu(24))")
    code = hybridc.compile(spec.replace("RULES", f"{rule} on layers.**, lm_head")).source["model.py"]
    names = ("BitInput", "FP8Input")
    assert any(f"ops.{name}(" in code for name in names)
    itself = "".join(f"\n\ndef {name}(x, *_, **__):\n    return x\n" for name in names)
    plain = re.sub(r"ops\.(BitInput|FP8Input)\(", r"\1(", code) + itself
    ids = torch.randint(32, (2, 11), generator=torch.Generator().manual_seed(0))
    found = []
    for text in (code, plain):
        net = load_source("m", text).Model()
        net.init_weights(1)
        out = net(ids, labels=ids)
        out.loss.backward()
        found.append((out.logits.detach(), {n: p.grad for n, p in net.named_parameters()}))
    (ours, grads), (theirs, wanted) = found
    assert torch.equal(ours, theirs)
    for name, grad in wanted.items():
        torch.testing.assert_close(grads[name], grad)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("bitnet on norm", ["norm"]),
        ("fp8(row) on router, **.qkv", ["router"]),
        ("fp8(row) on embed", ["embed"]),
        ("fp8(row) on layers[0].attn.q_norm", ["q_norm"]),
        ("fp8(row) on attn\n bitnet on layers.**", ["later rules"]),
        ("fp8(row) on attn.qkv\n bf16 on attn", ["later rules"]),
        ("fp8(row) on attn.qkv.weight", ["no whole product"]),
        ("bitnet on layers.** except norm\n fp8(row) on attn, lm_head", []),
    ],
)
def test_rules_without_effect_say_so(rules, words):
    sink = hybridc.check(SPEC.replace("RULES", rules))
    assert not sink.errors
    found = [d for d in sink.diagnostics if d.code == "HYB308"]
    assert len(found) == len(words) and all(w in d.label for w, d in zip(words, found, strict=True))


@pytest.mark.parametrize("place", ["rollout", "dispatch", "kv_cache"])
def test_places_that_are_not_emitted_say_so(place):
    warnings = hybridc.compile(SPEC.replace("RULES", f"fp8(block128) on {place}")).warnings
    assert [(d.code, place in d.label) for d in warnings] == [("HYB305", True)]


def test_no_spec_can_call_it():
    text = SPEC.replace("norm >> linear(16)", "norm >> quantize(fp8)").replace("RULES", "bitnet on attn")
    assert "HYB102" in [d.code for d in hybridc.check(text).errors]


@pytest.mark.parametrize("name", sorted(set(names(records=False)) & set(KINDS)))
def test_every_projection_takes_a_format(name):
    """What an op calls a projection is one in emitted code: as many products of the format as the op names."""
    block = f"block L {{ x += rmsnorm() >> {KINDS[name]} }}"
    spec = f"model m {{ param dim = 16\n {block}\n embed = embedding(8)\n layers = L\n head = lm_head(8) }}"
    compiled = hybridc.compile(f"{spec}\nprecision {{ fp8(block128) on layers.** }}")
    (node,) = (n for n in compiled.ir.blocks[0].nodes if n.formats)
    code = compiled.source["model.py"]
    assert len(re.findall(r"ops\.FP8(?:Linear|Product)\(", code)) == len(node.formats) > 0
    assert "bitnet" not in code
    assert set(node.op.entries((16,))) <= {part for part, _ in node.formats}


@pytest.mark.parametrize("name", sorted(set(names(records=False)) & set(KINDS)))
def test_every_linear_map_can_be_packed(name):
    """In each op: the net holds what the IR says, bytes where it says so, and computes."""
    block = f"block L {{ x += rmsnorm() >> {KINDS[name]} }}"
    spec = f"model m {{ param dim = 16\n {block}\n embed = embedding(8)\n layers = L\n head = lm_head(8) }}"
    spared = " except moe.experts" if name == "moe" else ""
    compiled = hybridc.compile(f"{spec}\nprecision {{ bitnet(packed) on layers.**{spared} }}")
    net = compiled.load()
    held = {n.removeprefix("layers.0."): p for n, p in net.named_parameters() if n.startswith("layers.0.")}
    (block,) = compiled.ir.blocks
    listed = {f"{node.path}.{p.name}": p for node, p in block.params()}
    assert {n: tuple(p.shape) for n, p in held.items()} == {n: p.shape for n, p in listed.items()}
    packed = {n for n, p in listed.items() if p.packs}
    assert packed == {n for n, p in held.items() if p.dtype == torch.uint8} and packed
    assert len(packed) == compiled.source["model.py"].count("ops.PackedBitLinear(")
    assert net(torch.arange(8)[None]).logits.isfinite().all()


def test_forms_of_a_format_share_what_enters_them():
    """One value in 8 bits for products whose weights are packed and for others."""
    block = "let norm = rmsnorm()\n  block L { x += norm >> (attention(heads=2) | swiglu(16)) }"
    spec = f"model m {{ param dim = 16\n {block}\n embed = embedding(8)\n layers = L\n head = lm_head(8) }}"
    rules = "precision { bitnet on layers.**\n bitnet(packed) on attention }"
    compiled = hybridc.compile(f"{spec}\n{rules}")
    assert sum(type(n.op).kind == "quantize" for n in compiled.ir.blocks[0].nodes) == 1
    assert parse_module(print_module(compiled.ir)) == compiled.ir
    assert compiled.load()(torch.arange(8)[None]).logits.isfinite().all()


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ("bitnet(packed) on layers.**", ["moe.experts.down", "moe.experts.gate_up"]),
        ("bitnet(packed) on layers.** except experts", []),
        ("bitnet(packed) on layers.**\n bitnet on experts", []),
        ("bitnet(packed) on layers[1].moe", ["moe.experts.down", "moe.experts.gate_up"]),
    ],
)
def test_experts_are_not_packed(rules, named):
    errors = hybridc.check(SPEC.replace("RULES", rules)).errors
    assert [(d.code, d.label.split("`")[1]) for d in errors] == [("HYB309", name) for name in named]


@pytest.mark.parametrize("format", ["bitnet()", "bitnet(unpacked)", "bitnet(packed, 2)", "bitnet(packed, bits=2)"])
def test_bitnet_has_one_option(format):
    assert "HYB304" in [d.code for d in hybridc.check(SPEC.replace("RULES", f"{format} on attn")).errors]


def test_the_gate_of_a_shared_expert_stays_as_the_router_does():
    """One number a token: no rule reaches it, and one that names it says so."""
    spec = SPEC.replace("shared=8)", "shared=8, shared_gate=true)")
    code = hybridc.compile(spec.replace("RULES", "fp8(block128) on **")).source["model.py"]
    assert "self.shared_gate = nn.Linear(16, 1, bias=False)" in code
    found = hybridc.check(spec.replace("RULES", "fp8(block128) on **.shared_gate"))
    assert [d.code for d in found.diagnostics] == ["HYB308"]


def test_an_option_given_twice():
    found = hybridc.check(SPEC.replace("RULES", "fp8(block128, fwd=e4m3, fwd=e5m2) on **"))
    assert [d.code for d in found.diagnostics] == ["HYB115"]


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("layers[0].** except layers[0].**", 0),
        ("H except H", 0),
        ("lm_head, layers.** except lm_head", 1),
        ("H.attn.qkv.weight", 0),
        ("layers[0] except layers[0].**", 0),
    ],
)
def test_except_wins_over_the_same_words_in_front_of_it(rule, left):
    spec = SPEC.replace("RULES", f"bitnet on {rule}")
    layers, head, _ = formats(f"bitnet on {rule}")
    assert not head and all(bool(found) == bool(left) for found in layers)
    said = [d.code for d in hybridc.check(spec).diagnostics]
    assert said == ([] if left else ["HYB308"])
