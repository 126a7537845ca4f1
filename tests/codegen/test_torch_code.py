"""Emitted classes of shared blocks in which layers have weights of their own."""

import copy

import pytest
import torch

import hybridc
from hybridc.ir.text import parse_module, print_module
from hybridc.passes.analysis.cost import block_table, parameter_count
from hybridc.passes.analysis.memory import weight_bytes

SPEC = """model m {
  let norm = rmsnorm()
  block M { x += norm >> mamba2(heads=2, head_dim=8, state=4) }
  shared(2) block H {
    side = concat(x, x0) >> norm >> attn: attention(heads=2, head_dim=8, out_dim=16, adapter=lora(2))
    x += x + side >> own(norm >> down: linear(16)) >> mlp: mlp(8, act=relu, gate_scale=0.5, adapter=lora(rank=3))
    x += mix: (a: linear(16) >> b: own(swiglu(8)))
  }
  embed = embedding(24, 16)
  layers = M H H M H
  head = norm >> lm_head(24)
}
"""
OWN = {"attn.adapter", "norm_2", "down", "mlp.adapter", "mix.b"}


@pytest.fixture
def net():
    made = hybridc.compile(SPEC).load()
    made.init_weights()
    with torch.no_grad():
        for n, parameter in enumerate(made.parameters()):
            if "adapter" in next(k for k, p in made.named_parameters() if p is parameter):
                parameter.normal_(generator=torch.Generator().manual_seed(n), std=0.3)
    return made


def test_turns_share_all_that_is_not_their_own(net):
    first, second, third = (dict(net.layers[i].named_parameters()) for i in (1, 2, 4))
    own = {name for name in first if first[name] is not third[name]}
    assert {name for name in first if any(name.startswith(o + ".") for o in OWN)} == own
    assert first.keys() == second.keys() == third.keys()
    assert not [name for name in first if first[name] is second[name]]


def test_each_layer_counts_what_is_its_own(net):
    ir = hybridc.compile(SPEC).ir
    assert parameter_count(ir) == sum(p.numel() for p in net.parameters())
    assert weight_bytes(ir) == 4 * parameter_count(ir)
    rows = [r for r in block_table(ir) if not r.op]
    assert sum(r.all_parameters for r in rows) == parameter_count(ir)


def test_text_form_says_what_is_own():
    ir = hybridc.compile(SPEC).ir
    text = print_module(ir)
    assert "own linear" in text and parse_module(text) == ir


def test_numbers_are_those_of_the_formula(net):
    net = net.double()
    ids = torch.randint(24, (1, 9), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        x = x0 = net.embed(ids)
        for i, layer in enumerate(net.layers):
            got = layer(x, x0, context(ids), {})
            if i in (1, 2, 4):
                assert torch.allclose(got, hybrid(dict(layer.named_parameters()), x, x0), atol=1e-12)
            x = got


def context(ids):
    from hybridc.runtime.context import Context

    return Context(ids)


def hybrid(w, x, x0):
    """The block H, written out."""

    def norm(v, weight):
        return v / (v.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    h = norm(torch.cat((x, x0), -1), w["norm.weight"])
    downs = (h @ w["attn.adapter.down.weight"].T).chunk(3, -1)
    added = torch.cat([d @ w[f"attn.adapter.up.{n}.weight"].T for n, d in enumerate(downs)], -1)
    q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (h @ w["attn.qkv.weight"].T + added).chunk(3, -1))
    scores = (q @ k.transpose(-1, -2) * 8**-0.5).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2) @ w["attn.out.weight"].T
    y = norm(x + y, w["norm_2.weight"]) @ w["down.weight"].T
    up = y @ w["mlp.up.weight"].T + y @ w["mlp.adapter.down.weight"].T @ w["mlp.adapter.up.0.weight"].T
    x = x + (0.5 * up).relu() @ w["mlp.down.weight"].T
    gate, up = (x @ w["mix.a.weight"].T @ w["mix.b.gate_up.weight"].T).chunk(2, -1)
    return x + (gate * gate.sigmoid() * up) @ w["mix.b.down.weight"].T


def test_caches_are_each_layers_own(net):
    ids = torch.randint(24, (2, 9), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        whole, cache = net(ids).logits, net.new_cache(2, 9)
        steps = torch.cat([net(ids[:, i : i + 1], cache=cache).logits for i in range(9)], 1)
    torch.testing.assert_close(steps, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda net: net.to(torch.bfloat16)])
def test_sharing_outlives_copies_and_casts(net, how):
    made = how(net)
    assert made.layers[4].attn.qkv is made.layers[1].attn.qkv
    assert made.layers[4].attn.adapter is not made.layers[1].attn.adapter


def test_adapters_start_as_nothing():
    net = hybridc.compile(SPEC).load()
    net.init_weights()
    for i in (1, 2, 4):
        assert not net.layers[i].mlp.adapter.up[0].weight.any()
        assert net.layers[i].mlp.adapter.down.weight.all()


def test_a_block_that_shares_nothing():
    spec = SPEC.replace("block M {", "shared block S { x += own(linear(16)) }\n  block M {").replace(
        "M H H", "S S M H H"
    )
    net = hybridc.compile(spec).load()
    assert net.layers[0].linear is not net.layers[1].linear


def test_a_block_of_its_own_may_have_adapters(net):
    spec = SPEC.replace("M H H M H", "M N N").replace(
        "shared(2) block H", "block N { x += mlp(8, adapter=lora(2)) }\n  shared(2) block H"
    )
    net = hybridc.compile(spec).load()
    assert net.layers[1].mlp.adapter.down.weight.shape == (2, 16)
    assert net.layers[1].mlp.up is not net.layers[2].mlp.up
