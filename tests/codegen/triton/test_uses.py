"""The kernels that ops name compute what the ops' own modules compute."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hybridc
from hybridc.codegen.triton.uses import uses
from hybridc.codegen.triton_code import Use, emit_kernels
from hybridc.diagnostics import Sink
from hybridc.ir.emit import Emit
from hybridc.ir.ops.attention import Attention
from hybridc.ir.ops.mlp import ACTIVATIONS, MLP
from hybridc.ir.ops.moe import MoE
from hybridc.ir.ops.norms import GatedRMSNorm, LayerNorm, RMSNorm
from hybridc.ir.ops.rope import Rope
from hybridc.passes.fuse import fuse
from hybridc.runtime import ops
from hybridc.runtime.ops.rope import Tables, rotate
from tests.codegen.triton.emitted import kernels, load

WIDTH = 24


GATES = tuple(itertools.product((1, 3), (True, False), ("silu", "sigmoid")))


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(kernel, *given):
    """The kernel that an op names."""
    segments = {"segments": kernel.segments} if kernel.segments else {}
    return getattr(kernels(), kernel.name)(*given, **dict(kernel.constants), **segments)


def close(a, b):
    torch.testing.assert_close(a, b, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize(
    "op",
    [
        RMSNorm(eps=1e-3),
        RMSNorm(eps=1e-3, zero_centered=True),
        RMSNorm(eps=1e-3, affine=False),
        LayerNorm(eps=1e-3),
        LayerNorm(eps=1e-3, bias=False),
        *(GatedRMSNorm(eps=1e-3, groups=g, gate_first=f, act=a) for g, f, a in GATES),
    ],
)
def test_norms(op):
    module = eval(op.constructor((WIDTH,), Emit()), {"nn": nn, "ops": ops})
    for i, parameter in enumerate(module.parameters()):
        parameter.data = draw(WIDTH, seed=i)
    given = [draw(2, 5, WIDTH, seed=9), *([draw(2, 5, WIDTH, seed=8)] if isinstance(op, GatedRMSNorm) else [])]
    (kernel,) = op.kernels((WIDTH,) * len(given))
    assert not kernel.part and kernel.width * max(1, kernel.segments) == WIDTH
    close(run(kernel, *given, *module.parameters()), module(*given))


@pytest.mark.parametrize("gate_first", [True, False])
def test_norms_of_heads(gate_first):
    op = GatedRMSNorm(gate_first=gate_first)
    module = ops.GatedRMSNorm(8, eps=op.eps, gate_first=gate_first)
    module.weight.data = draw(8)
    x, gate = draw(2, 5, 3, 8, seed=1), draw(2, 5, 3, 8, seed=2)
    (kernel,) = op.by_head(8, 3, "norm", "out")
    close(run(kernel, x.flatten(-2), gate.flatten(-2), module.weight), module(x, gate).flatten(-2))


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations(act):
    def activation(x):
        return eval(ACTIVATIONS[act].format("x"), {"F": F, "x": x})

    both = draw(2, 5, 2 * WIDTH)
    gate, up = both.chunk(2, -1)
    (plain,), (gated,) = (MLP(WIDTH, act=act, gated=g).kernels((8,)) for g in (False, True))
    close(run(plain, gate), activation(gate))
    close(run(gated, both), activation(gate) * up)


def test_a_scaled_gate():
    (kernel,) = MLP(WIDTH, gated=True, gate_scale=0.3).kernels((8,))
    both = draw(2, 5, 2 * WIDTH)
    gate, up = both.chunk(2, -1)
    close(run(kernel, both), F.silu(0.3 * gate) * up)


@pytest.mark.parametrize("limit", [0.5, None])
def test_experts(limit):
    op = MoE(experts=4, hidden=WIDTH, top_k=2, limit=limit, beta=1.702, up_offset=1.0)
    kernel = next(k for k in op.kernels((8,)) if k.part == "experts")
    experts = ops.Experts(4, 8, WIDTH, beta=1.702, limit=limit, up_offset=1.0)
    both = draw(5, 2 * WIDTH)
    close(run(kernel, both), experts._inside(both))


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
@pytest.mark.parametrize("bias", [True, False])
def test_routers(scores, bias):
    op = MoE(experts=12, hidden=8, top_k=3, scores=scores, correction_bias=bias, groups=4, top_groups=2, scaling=2.5)
    kernel = next(k for k in op.kernels((8,)) if k.part == "router")
    logits, added = draw(2, 5, 12), draw(12, seed=1)
    choose = getattr(ops, f"{scores}_topk")
    given = {"bias": added} if bias else {}
    weights, ids = choose(logits, 3, renormalize=True, groups=4, top_groups=2, scaling=2.5, **given)
    found, chosen = run(kernel, logits, *given.values())
    assert torch.equal(chosen, ids)
    close(found, weights)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_rope(interleaved, partial):
    op = Attention(heads=3, kv_heads=1, head_dim=8, rope=Rope(partial=partial, interleaved=interleaved))
    query, key = (k for k in op.kernels((WIDTH,)) if k.part.endswith("rope"))
    for kernel, heads in ((query, 3), (key, 1)):
        angles, x = draw(2, 5, kernel.width), draw(2, 5, heads, 8, seed=1)
        tables = Tables(angles.cos()[:, :, None], angles.sin()[:, :, None], interleaved)
        close(run(kernel, x.flatten(-2), angles.cos(), angles.sin()), rotate(x, tables).flatten(-2))


SPEC = """model m {
  param dim = 64
  let norm = rmsnorm(eps=0.001)
  block A {
    x += norm >> attention(heads=4, rope=rope()) >> scale(0.5)
    x += norm >> swiglu(96)
  }
  embed = embedding(32, dim)
  layers = A * 2
  head = norm >> lm_head(32, softcap=20.0)
}
precision { fp8(block128) on mlp }
"""


def test_forms_of_a_module():
    module = fuse(hybridc.compile(SPEC.replace("swiglu(96)", "mlp: swiglu(96)")).ir, Sink())
    found = uses(module)
    wanted = (
        Use("rmsnorm", 64, "fp32", {"eps": 0.001}),
        Use("scaled_add_rmsnorm_e4m3_block", 64, "fp32", {"factor": 0.5, "eps": 0.001}),
        Use("rope_halves", 8, "fp32", {}, 4),
        Use("silu_glu_e4m3_block", 96, "fp32"),
        Use("softcap", 32, "fp32", {"cap": 20.0}),
    )
    assert len(found) == len(wanted) and all(use in found for use in wanted)
    made = load(emit_kernels(found, "One model."), "emitted_model")
    assert [v.name for v in made.VARIANTS if "softcap" in v.name] == [
        "softcap_forward[32 fp32]", "softcap_backward[32 fp32]"
    ]  # fmt: skip
    x, residual, weight = draw(3, 64), draw(3, 64, seed=1), draw(64, seed=2)
    h, *_ = made.scaled_add_rmsnorm_e4m3_block(x, residual, weight, factor=0.5, eps=0.001)
    close(h, residual + 0.5 * x)
