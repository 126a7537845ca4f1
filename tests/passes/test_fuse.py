"""Which kernels the fuse pass finds, worked out by hand, and that the IR keeps them."""

from dataclasses import replace
from pathlib import Path

import pytest

import hybridc
from hybridc.diagnostics import Sink
from hybridc.ir.kernels import groups
from hybridc.ir.text import parse_module, print_module
from hybridc.ir.verify import InvalidIR, verify
from hybridc.passes.fuse import fuse

SPEC = """model m {{
  param dim = 64
  let norm = rmsnorm()
  block A {{
{body}
  }}
  embed = embedding(32, dim)
  layers = A * 2
  head = norm >> lm_head(32)
}}
precision {{ {rules} }}
"""
SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.hyb"))


def fused(body, rules=""):
    """The fused module of a block's statements."""
    spec = (
        SPEC.format(body=body, rules=rules) if rules else SPEC.format(body=body, rules="").replace("precision {  }", "")
    )
    module = fuse(hybridc.compile(spec).ir, Sink())
    verify(module)
    assert parse_module(print_module(module)) == module
    return module


def kinds(body, rules=""):
    """{kernel: the kinds of the nodes that it computes}, and {path: kernels inside}."""
    block = fused(body, rules).blocks[0]
    found = {name: [type(n.op).kind for n in nodes] for name, nodes in groups(block).items()}
    return found, {n.path: dict(n.inner) for n in block.nodes if n.inner}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # pre-norm: the second norm goes with the first sum; the last sum has nothing behind it
        (
            "x += norm >> linear(64)\n x += norm >> linear(64)",
            {"rmsnorm.0": ["rmsnorm"], "add_rmsnorm.1": ["add", "rmsnorm"]},
        ),
        # post-norm: each norm goes with the sum behind it
        ("x += linear(64) >> norm", {"rmsnorm_add.0": ["rmsnorm", "add"]}),
        # both: the sum between goes with the norm behind it, which cannot be computed before it
        (
            "x += linear(64) >> norm\n x += norm >> linear(64)",
            {"rmsnorm.0": ["rmsnorm"], "add_rmsnorm.1": ["add", "rmsnorm"]},
        ),
        # what is added is scaled
        (
            "x += norm >> linear(64) >> scale(0.5)\n x += norm >> linear(64) >> scale(0.5)",
            {
                "rmsnorm.0": ["rmsnorm"],
                "scaled_add_rmsnorm.1": ["scale", "add", "rmsnorm"],
                "scaled_add.2": ["scale", "add"],
            },
        ),
        # a scaled value that something else reads as well is computed on its own
        (
            "h = linear(64) >> scale(0.5)\n x = (x + h) >> norm\n x += h",
            {"add_rmsnorm.0": ["add", "rmsnorm"]},
        ),
        # two norms of one sum: the kernel of a sum has one norm
        (
            "h = x + linear(64)\n x = (h >> norm) + (h >> layernorm(bias=false))",
            {"add_rmsnorm.0": ["add", "rmsnorm"], "layernorm_without_bias_add.1": ["layernorm", "add"]},
        ),
        # a norm whose own result comes back through the sum that it would be stored with
        (
            "h = norm\n x = h + (h >> linear(64))",
            {"rmsnorm.0": ["rmsnorm"]},
        ),
        ("x = gated_rmsnorm(gate=linear(64), groups=4, gate_first=false)", {"rmsnorm_gated_silu.0": ["gated_rmsnorm"]}),
        ("x = linear(64) + linear(64)", {}),
    ],
)  # fmt: skip
def test_groups(body, expected):
    assert kinds(body)[0] == expected


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("fp8(block128)", "add_rmsnorm_e4m3_block"),
        ("fp8(row)", "add_rmsnorm_e4m3_row"),
        ("bitnet", "add_rmsnorm_int8_row"),
        ("fp8(tensor)", "add_rmsnorm"),  # needs the largest of the whole tensor
        ("fp8(block128, fwd=e5m2)", "add_rmsnorm"),
        ("fp8(block128, scale=pow2)", "add_rmsnorm"),
    ],
)
def test_a_norm_takes_over_its_quantize(rule, name):
    found, inner = kinds("x += norm >> linear(64)\n x += norm >> swiglu(32)", f"{rule} on layers.**")
    quantize = ["quantize"] if name != "add_rmsnorm" else []
    assert found[f"{name}.1"] == ["add", "rmsnorm", *quantize]
    form = name.removeprefix("add_rmsnorm")
    assert inner == {"swiglu": {"act": f"silu_glu{form}"}}


def test_a_norm_that_more_than_quantize_reads_stores_its_result_as_it_is():
    found, _ = kinds("h = norm\n x = h + (h >> linear(64))", "fp8(block128) on layers.**")
    assert found == {"rmsnorm.0": ["rmsnorm"]}


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("swiglu(32)", {"act": "silu_glu"}),
        ("mlp(32, act=\"relu2\", down_norm=rmsnorm())", {"act": "relu2", "down_norm": "rmsnorm"}),
        ("swiglu(32, gate_scale=0.5)", {"act": "scaled_silu_glu"}),
        (
            "moe(experts=4, hidden=8, top_k=2, scores=\"sigmoid\", correction_bias=true, shared=8, shared_gate=true)",
            {
                "router": "sigmoid_bias_router", "experts": "silu_glu",
                "shared.act": "silu_glu", "shared_gate": "sigmoid_row_gate",
            },
        ),
        (
            "moe(experts=4, hidden=8, top_k=2, limit=7.0, beta=1.702)",
            {"router": "softmax_router", "experts": "clamped_swiglu"},
        ),
        ("mamba2(heads=4, head_dim=16, norm=gated_rmsnorm(groups=2))", {"norm": "gated_rmsnorm_silu"}),
        ("mamba2(heads=4, head_dim=16)", {"gate": "silu_gate"}),
        (
            "attention(heads=4, kv_heads=2, qk_norm=rmsnorm(), rope=rope(interleaved=true), gated=true)",
            {
                "q_norm": "head_rmsnorm", "k_norm": "head_rmsnorm",
                "q_rope": "rope_pairs", "k_rope": "rope_pairs", "gate": "sigmoid_gate",
            },
        ),
    ],
)  # fmt: skip
def test_parts_of_ops(op, expected):
    (inner,) = kinds(f"x += norm >> {op}")[1].values()
    assert inner == expected


def test_the_text_names_kernels():
    text = print_module(fused("x += norm >> swiglu(32)\n x += norm >> swiglu(32)"))
    assert "%2 = add %x, %1 in add_rmsnorm.1 : [B, S, 64] fp32\n" in text
    mlp = "%1 = mlp %0 {hidden = 32, gated = true, out_dim = 64} with (act silu_glu) : [B, S, 64] fp32  // swiglu\n"
    assert mlp in text


def test_a_group_around_another_value_is_refused():
    module = fused("x += norm >> linear(64)\n x += norm >> linear(64)")
    block = module.blocks[0]
    # the norm, its projection and the sum behind it: the kernel would need what it makes
    nodes = tuple(replace(n, kernel="rmsnorm_add.0") if i in (0, 2) else n for i, n in enumerate(block.nodes))
    with pytest.raises(InvalidIR, match="%1 stands between values of rmsnorm_add"):
        verify(replace(module, blocks=(replace(block, nodes=nodes),)))


def test_only_targets_with_kernels_name_them():
    spec = SPEC.format(body="x += norm >> linear(64)", rules="bf16 on layers.**")
    printed = []
    cpu = hybridc.compile(spec, print_after=["fuse"], out=printed.append)
    cuda = hybridc.compile(spec, target="cuda:sm90")
    assert not any(n.kernel for n in cpu.ir.blocks[0].nodes) and " in rmsnorm.0 " in printed[0]
    assert cuda.ir.blocks[0].nodes[0].kernel == "rmsnorm.0" and cuda.timings[-1].name == "fuse"
    assert "kernels.rmsnorm(" in cuda.source["model.py"] and "kernels" not in cpu.source["model.py"]
    assert not any(n.kernel for n in hybridc.compile(spec, target="cuda:sm90", passes=["simplify"]).ir.blocks[0].nodes)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_published_models(path):
    """Every norm of the stream has a kernel, and every kernel is one that can be generated."""
    from hybridc.codegen.triton.groups import GROUPS, ROUTERS, derived
    from hybridc.codegen.triton.uses import uses

    module = fuse(hybridc.compile(path).ir, Sink())
    verify(module)
    assert parse_module(print_module(module)) == module
    for block in module.by_name.values():
        for node in block.nodes:
            assert bool(node.kernel) >= (type(node.op).family == "norm")
    for use in uses(module):
        if use.name not in ROUTERS:
            group = derived(use.name, GROUPS)
            assert set(group.constants) == set(use.constants) and group.segmented == bool(use.segments)
