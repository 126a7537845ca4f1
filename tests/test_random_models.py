"""Random models, valid by construction: compiled, loaded, run, and held to the contract in every way of running."""

import itertools
import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridc
from hybridc.ir.describe import all_names
from hybridc.ir.ops import find
from hybridc.ir.text import parse_module, print_module
from tests.calls import WIDTH, calls
from tests.conftest import EXAMPLES

DIM = 16

mixers = st.sampled_from(
    [
        "attention(heads=4)",
        "attention(heads=4, kv_heads=2, rope=rope(theta=1000), window=3)",
        "attention(heads=2, head_dim=8, kv_heads=1, rope=rope(partial=0.5), bias=true, out_bias=true, qk_norm=norm)",
        "attention(heads=4, scale=0.4, key_scale=-1.5, qk_norm=layernorm())",
        "mamba2(heads=4, head_dim=4, state=3, chunk=4)",
        "mamba2(heads=2, head_dim=6, state=4, groups=2, chunk=8, conv=2, conv_bias=false, proj_bias=true)",
        "mamba2(heads=2, head_dim=6, state=4, out_bias=true)",
        "mamba2(heads=4, head_dim=2, state=2, norm=gated_rmsnorm(groups=2, gate_first=false), dt_limit=(0.01, 0.5))",
        "mamba2(heads=4, head_dim=2, state=2, in_scales=(0.5, 2, 1, 0.1, 3))",
        "mamba(state=2)",
        "mamba(state=3, norm=rmsnorm())",
        "mamba(state=2, norm=rmsnorm(affine=false, eps=0.01))",
        "rg_lru(blocks=4)",
        "rg_lru(blocks=2, inner=6, conv=2, act=relu2, c=3.0, conv_bias=false, proj_bias=false)",
        "attention(heads=4, adapter=lora(2))",
        "swiglu(12, adapter=lora(3))",
        "moe(experts=4, hidden=5, top_k=2, latent=6, latent_bias=true, shared=4, shared_bias=true, gated=false)",
        "mamba(state=3, inner=10, dt_rank=1, conv=3, proj_bias=true)",
        "swiglu(12)",
        "geglu(8, bias=true)",
        "mlp(8, act=relu2)",
        "mlp(8, act=gelu_tanh, gate_scale=0.3)",
        "moe(experts=3, hidden=6, top_k=2)",
        "moe(experts=1, hidden=6, top_k=1, gated=false, act=relu)",
        "moe(experts=4, hidden=5, top_k=4, renormalize=false, shared=7, aux_coef=0.1)",
        "linear(16)",
        "linear(16, bias=true)",
        "scale(0.7)",
        "rmsnorm()",
        "layernorm(bias=false)",
        "norm",
        "two",
        "x0",
        "gated_delta_net(heads=2, key_dim=4)",
        "gated_delta_net(heads=4, key_heads=2, key_dim=3, value_dim=5, conv=2, norm=gated_rmsnorm(gate_first=false))",
        "gated_delta_net(heads=2, key_dim=4, act=gelu, neg_eigval=true, norm=gated_rmsnorm(groups=2, act=sigmoid))",
        "kda(heads=2, head_dim=4)",
        "kda(heads=2, head_dim=3, gate_rank=2, norm=gated_rmsnorm(gate_first=false, act=sigmoid), conv=3)",
        "kda(heads=1, head_dim=5, lower_bound=-5, act=relu)",
        "mla(heads=2, kv_rank=4, nope_dim=3, rope_dim=2)",
        "mla(heads=2, kv_rank=4, nope_dim=3, rope_dim=4, value_dim=5, q_rank=6, rope=rope(interleaved=true))",
        "mla(heads=1, kv_rank=2, nope_dim=3, rope_dim=2, q_rank=3, rope=rope(), norm=norm)",
        "mla(heads=4, kv_rank=3, nope_dim=2, rope_dim=4, rope=rope(partial=0.5), bias=true, gated=true, scale=0.3)",
        "short_conv()",
        "short_conv(conv=2, bias=true)",
        "lightning_attention(heads=4)",
        "lightning_attention(heads=2, head_dim=3, slope_scale=0.5, norm=norm, act=gelu, chunk=4)",
        "rg_lru(blocks=4)",
        "rg_lru(blocks=1, inner=6, conv=2, act=silu, c=4, conv_bias=false, proj_bias=false)",
        "attention(heads=4, kv_heads=2, sinks=true, softcap=2, clip=1.5, window=4)",
        "attention(heads=2, gated=true, out_norm=norm, qk_norm=norm, qk_norm_over=all, rope=rope(interleaved=true))",
        "attention(heads=4, rope=rope(kind=longrope, original_max=1, short=(1, 2), long=(1, 3), attention_factor=1.1))",
        "attention(heads=4, dropout=0.1) >> dropout(0.2)",
        "moe(experts=6, hidden=4, top_k=2, scores=sigmoid, correction_bias=true, groups=3, top_groups=2, scaling=1.5)",
        "moe(experts=3, hidden=4, top_k=2, router_bias=true, bias=true, beta=1.7, limit=0.5, up_offset=1, shared=3, "
        "shared_gate=true, renormalize_eps=0.01, z_coef=0.1)",
        "mlp(8, down_norm=layernorm(), adapter=lora(2))",
        "rmsnorm(zero_centered=true)",
        "dropout(0.3)",
        "part: linear(16)",
        "grp: (linear(8) >> linear(16))",
    ]
)
values = st.sampled_from(["x", "x0"])


def expressions(depth):
    if not depth:
        return mixers
    inner = expressions(depth - 1)
    return st.one_of(
        mixers,
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) >> ({p[1]})" if p[1] != "x0" else f"({p[0]})"),
        st.tuples(inner, inner).map(lambda p: f"(({p[0]}) | ({p[1]}))"),
        st.tuples(inner, inner).map(lambda p: f"(({p[0]}) + ({p[1]}))"),
        st.tuples(inner, st.floats(-2, 2)).map(lambda p: f"(({p[0]}) * {p[1]:.3f})"),
        st.tuples(inner, inner).map(lambda p: f"(({p[0]}) * ({p[1]}))"),
        st.tuples(inner, values).map(lambda p: f"(concat({p[0]}, {p[1]}) >> linear(16))"),
        inner.map(lambda e: f"(({e}) if layer % 2 == 0 else norm)"),
    )


@st.composite
def models(draw):
    blocks = []
    for name in ("A", "B"):
        lines = []
        for n in range(draw(st.integers(1, 3))):
            expr = draw(expressions(2))
            kind = draw(st.integers(0, 4))
            if kind == 0 and "x0" not in expr:  # a block that forgets the stream would leave earlier layers idle
                lines.append(f"x = ({expr})")
            elif kind == 1:
                lines.append(f"v{n} = {expr}\n    x += gated_rmsnorm(gate=v{n})")
            else:
                lines.append(f"x += {expr}")
        shared = draw(st.sampled_from(["", "", "shared ", "shared(2) "])) if "layer" not in "".join(lines) else ""
        blocks.append(f"  {shared}block {name} {{\n    " + "\n    ".join(lines) + "\n  }")
    pattern = draw(st.sampled_from(["A B", "(A B) * 2", "A * 3 | B", "B A A", 'pattern("AB-", A=A, B=B, "-"=A)']))
    tied = draw(st.sampled_from(["", ", tied=true", ", bias=true"]))
    count = itertools.count()
    blocks = [re.sub(r"\b(part|grp):", lambda m: f"{m[1]}{next(count)}:", b) for b in blocks]
    return f"""model random {{
  param dim = {DIM}
  let norm = rmsnorm(eps=1e-4)
  let two = norm >> linear(16)
{chr(10).join(blocks)}
  embed = embedding(30, scale=1.5)
  layers = {pattern}
  head = norm >> lm_head(30{tied})
}}"""


def run(net, rows, **options):
    with torch.no_grad():
        return net(rows, **options).logits


def same(a, b):
    torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4 * max(1.0, b.abs().max().item()))


def keeps_the_contract(net, *, may_overflow=False):
    """A token's logits are those of its row alone, whatever it runs beside; and every parameter is there for something:
    it has a gradient, unless none is wanted."""
    rows = torch.randint(1, 30, (2, 13), generator=torch.Generator().manual_seed(0))
    solo = [run(net, r[None])[0] for r in rows]
    if not all(s.isfinite().all() for s in solo):
        assert may_overflow
        return  # nothing can be compared
    same(run(net, rows), torch.stack(solo))
    packed = run(net, rows.reshape(1, -1), seq=hybridc.PackedSeq(torch.tensor([0, 13, 26])))[0]
    same(packed, torch.cat(solo))
    mask = torch.ones_like(rows)
    mask[0, :4] = 0
    mask[1, 9:] = 0
    padded = run(net, rows, attention_mask=mask)
    same(padded[0, 4:], run(net, rows[:1, 4:])[0])
    same(padded[1, :9], run(net, rows[1:, :9])[0])
    cache = net.new_cache(2, 13)
    steps = [run(net, rows[:, :6], cache=cache)] + [run(net, rows[:, i : i + 1], cache=cache) for i in range(6, 9)]
    steps.append(run(net, rows[:, 9:], cache=cache))
    same(torch.cat(steps, 1), torch.stack(solo))

    net.train()
    out = net(rows, labels=rows)
    out.loss.backward()
    without = [n for n, p in net.named_parameters() if p.requires_grad and p.grad is None]
    assert not without, without


@given(models())
@settings(max_examples=max(20, EXAMPLES // 5))
def test_a_random_model_keeps_the_contract(text):
    compiled = hybridc.compile(text)
    assert parse_module(print_module(compiled.ir)) == compiled.ir
    net = compiled.load(seed=0).eval()
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.dim() >= 2 and "A_log" not in name:
                p.mul_(8.0)
    assert json.loads(compiled.source["manifest.json"])["parameter_count"] == sum(p.numel() for p in net.parameters())
    names = {n for n, _ in net.named_parameters(remove_duplicate=False)}
    declared = {
        (b, p["name"])
        for b, e in json.loads(compiled.source["manifest.json"])["blocks"].items()
        for p in e["parameters"]
    }
    assert all(any(n.endswith("." + p) for n in names) for _, p in declared)

    keeps_the_contract(net, may_overflow=True)  # products of products
    again = hybridc.compile(hybridc.format_source(text))
    assert again.source["model.py"] == compiled.source["model.py"]


LAYERS = [n for n in all_names() if not find(n)[0].record and find(n)[0].family != "ends"]
LAYERS = [n for n in LAYERS if n not in ("add", "mul", "concat")]  # which have no arguments


@pytest.mark.parametrize("name", LAYERS)
@given(st.data())
@settings(max_examples=max(10, EXAMPLES // 20))
def test_any_call_of_an_op_is_refused_or_keeps_the_contract(name, data):
    call = data.draw(calls(name))
    if name == "gated_rmsnorm":
        call = call.replace("(", "(gate=x, ", 1)
    text = f"""model random {{
  block A {{ x += rmsnorm() >> op: {call} }}
  embed = embedding(30, {WIDTH})
  layers = A * 2
  head = rmsnorm() >> lm_head(30)
}}"""
    if hybridc.check(text).errors:
        return
    net = hybridc.compile(text).load(seed=0).eval()
    with torch.no_grad():
        for n, (path, p) in enumerate(net.named_parameters()):
            generator = torch.Generator().manual_seed(n)
            if p.dim() >= 2 and "A_log" not in path:
                p.mul_(8.0)
            elif not path.endswith(("A_log", "dt_bias", "dt_proj.bias", "Lambda")):
                p.add_(0.3 * torch.randn(p.shape, generator=generator))
    keeps_the_contract(net)
