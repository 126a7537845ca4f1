"""BitNet's training form against its formulas in float64 (Ma et al., 2024, equations 1 to 4)."""

import torch

from hybridc.runtime.ops import BitLinear
from hybridc.runtime.ops.bit_linear import eight_bits, ternary


def test_weights_are_three_values_of_mean_size():
    weight = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))
    mean = weight.double().abs().mean()
    expected = (weight.double() / mean).round().clamp(-1, 1) * mean
    torch.testing.assert_close(ternary(weight).double(), expected, rtol=1e-6, atol=1e-7)
    assert len(ternary(weight).unique()) == 3


def test_activations_have_a_scale_for_each_token():
    x = (
        torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))
        * torch.tensor([1e-3, 1.0, 50.0])[:, None, None]
    )
    largest = x.double().abs().amax(-1, keepdim=True)
    expected = (x.double() * 127 / largest).round() * largest / 127
    torch.testing.assert_close(eight_bits(x).double(), expected, rtol=1e-6, atol=1e-9)


def test_zeros_stay_zeros():
    zeros = torch.zeros(4, 8)
    assert torch.equal(eight_bits(zeros), zeros) and torch.equal(ternary(zeros), zeros)


def test_gradients_pass_straight_through():
    layer = BitLinear(8, 6, bias=True)
    x = torch.randn(5, 8, requires_grad=True)
    grad = torch.randn(5, 6)
    layer(x).backward(grad)
    torch.testing.assert_close(x.grad, grad @ ternary(layer.weight.detach()))
    torch.testing.assert_close(layer.weight.grad, grad.T @ eight_bits(x.detach()))
    torch.testing.assert_close(layer.bias.grad, grad.sum(0))


def test_fused_projections_have_scales_of_their_own():
    fused = BitLinear(8, 10, parts=(6, 4))
    with torch.no_grad():
        fused.weight[6:] *= 20
    x = torch.randn(3, 8)
    alone = []
    for rows in (fused.weight[:6], fused.weight[6:]):
        layer = BitLinear(8, rows.shape[0])
        with torch.no_grad():
            layer.weight.copy_(rows)
        alone.append(layer(x))
    torch.testing.assert_close(fused(x), torch.cat(alone, -1))
