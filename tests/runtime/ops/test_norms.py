"""The gated norm against its formula in float64."""

import pytest
import torch

from hybridc.runtime import ops
from tests.runtime.ops.cases import close, made


@pytest.mark.parametrize("gate_first", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gated_norm(groups, gate_first):
    norm = ops.GatedRMSNorm(8, eps=1e-3, groups=groups, gate_first=gate_first)
    with torch.no_grad():
        norm.weight.copy_(made(1, 8))
    x, z = made(2, 3, 8), made(3, 3, 8)
    gate = z.double() / (1 + (-z.double()).exp())
    y = x.double() * gate if gate_first else x.double()
    parts = y.unflatten(-1, (groups, 8 // groups))
    y = (parts / (parts.square().mean(-1, keepdim=True) + 1e-3).sqrt()).flatten(-2) * norm.weight.double()
    close(norm(x, z), y if gate_first else y * gate, 1e-6)


def test_half_inputs_are_normed_in_fp32():
    norm = ops.GatedRMSNorm(64, eps=1e-5)
    x, z = made(2, 9, 64).to(torch.bfloat16), made(3, 9, 64).to(torch.bfloat16)
    y = norm(x, z)
    gated = x.double() * z.double() / (1 + (-z.double()).exp())
    want = gated / (gated.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert y.dtype == torch.bfloat16
    assert ((y.double() - want).abs() <= want.abs() * 2**-8 + 1e-6).all()
