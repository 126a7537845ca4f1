"""How the parameters of a compiled net start, and which of them it has once."""

import pytest
import torch

import hybridc
from hybridc.passes.analysis.cost import parameter_count
from tests.runtime.zoo import SPEC


def test_initial_spreads():
    """GPT-2's: N(0, 0.02), residual outputs over the root of the number of residual sublayers (here 9)."""
    spec = SPEC.replace("param dim = 32", "param dim = 256").replace("linear(32)", "linear(256)")
    made = hybridc.compile(spec).load()
    first = made.layers[0].mamba2
    assert first.in_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert first.out_proj.weight.std().item() == pytest.approx(0.02 / 3, rel=0.1)
    assert (first.D == 1).all() and (made.layers[0].norm.weight == 1).all()
    a = first.A_log.exp()
    assert ((a >= 1) & (a <= 16)).all()
    dt = torch.nn.functional.softplus(first.dt_bias)
    assert ((dt > 0.0009) & (dt < 0.101)).all()
    assert torch.equal(made.layers[4].mamba.A_log[0], torch.arange(1.0, 5.0).log())


def test_a_bf16_spec_makes_a_bf16_module():
    made = hybridc.compile(SPEC + "\nprecision { default bf16 }").load()
    assert made.embed.embedding.weight.dtype == torch.bfloat16
    assert made.layers[0].mamba2.A_log.dtype == torch.float32


def test_shared_blocks_are_one_set_of_weights():
    compiled = hybridc.compile(SPEC)
    net = compiled.load()
    assert net.layers[1] is net.layers[5] and net.layers[1] is not net.layers[3]
    assert sum(p.numel() for p in net.parameters()) == parameter_count(compiled.ir)
