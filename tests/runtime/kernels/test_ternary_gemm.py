"""BitNet's packed product against its formulas in float64 (Ma et al., 2024, equations 1 to 4), and training form."""

import pytest
import torch

from hybridc.runtime.kernels.ternary_gemm import (
    bit_linear,
    bit_linear_reference,
    pack,
    quantize_ternary,
    quantize_tokens,
    unpack,
)
from hybridc.runtime.ops import BitLinear
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops.cases import close, made


def levels(x):
    """Each token on 127 levels of its largest, fp64, and that largest over 127."""
    wide = x.double()
    largest = wide.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (wide * 127 / largest).round(), largest / 127


def ternary(weight, parts=()):
    """Each projection's weights as -1, 0 and 1 times its mean size, fp64."""
    made = []
    for part in weight.double().split(parts or len(weight)):
        mean = part.abs().mean().clamp(min=1e-5)
        made.append((part / mean).round().clamp(-1, 1) * mean)
    return torch.cat(made)


def packed(weight, parts=()):
    values, scale = quantize_ternary(weight, parts)
    return pack(values), scale


@pytest.mark.parametrize("width", [1, 4, 63, 64, 65, 200])
def test_packing(width):
    values = torch.randint(-1, 2, (7, width), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    codes = pack(values)
    plane = codes.shape[1]
    assert codes.dtype == torch.uint8 and plane % 16 == 0 and 4 * plane < width + 64
    assert torch.equal(unpack(codes, width), values)
    for k in range(width):  # where a weight is said to be
        assert torch.equal(codes[:, k % plane].int() // 4 ** (k // plane) % 4, values[:, k].int() + 1)


@pytest.mark.parametrize("parts", [(), (10, 20, 3)])
def test_weights(parts):
    weight = made(0, 33, 40) * torch.linspace(0.1, 9, 33)[:, None]
    values, scale = quantize_ternary(weight, parts)
    assert set(values.unique().tolist()) == {-1, 0, 1} and scale.unique().numel() == max(len(parts), 1)
    close(values.double() * scale.double()[:, None], ternary(weight, parts))
    zeros, scale = quantize_ternary(torch.zeros(3, 4))
    assert not zeros.any() and torch.allclose(scale, torch.tensor(1e-5))


@pytest.mark.parametrize("shape", [(3, 5, 40), (2, 5000), (1, 1)])
def test_tokens(shape):
    x = made(1, *shape) * torch.logspace(-3, 3, shape[-2])[:, None]
    data, scale, total = quantize_tokens(x)
    expected, one = levels(x)
    assert data.dtype == torch.int8 and torch.equal(data.double(), expected)
    torch.testing.assert_close(scale.double(), one.squeeze(-1), rtol=2e-7, atol=0)
    assert torch.equal(total.double(), expected.sum(-1))
    assert torch.equal(quantize_tokens(x.transpose(-1, -2).contiguous().transpose(-1, -2))[0], data)


def test_tokens_of_which_a_part_is_here():
    x = made(1, 4, 90)
    x[2, 80], x[3, 80] = torch.inf, 1e-7
    x[3, :80] = 1e-8
    data, scale, total = quantize_tokens(x[:, :40], x.abs().amax(-1))
    expected, one = levels(x[[0, 1, 3]])
    assert torch.equal(data[[0, 1, 3]].double(), expected[:, :40]) and scale[2].isnan() and not data[2].any()
    torch.testing.assert_close(scale[[0, 1, 3]].double(), one.squeeze(-1), rtol=2e-7, atol=0)
    assert torch.equal(total.double(), data.double().sum(-1))


def test_ties_go_to_even():
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -127.0]])
    assert quantize_tokens(x)[0].tolist() == [[127, 0, 2, 2, 0, -2, -2, -127]]


def test_tokens_without_a_scale():
    x = made(1, 4, 40)
    x[0], x[1, 3], x[2, 5], x[2, 6] = 0, torch.nan, torch.inf, -torch.inf
    data, scale, total = quantize_tokens(x)
    assert not data[:3].any() and not total[:3].any()
    assert scale[0] == torch.tensor(1e-5) / 127 and scale[1:3].isnan().all() and scale[3] > 0
    y = bit_linear(x, *packed(made(2, 6, 40)))
    assert not y[0].any() and y[1:3].isnan().all() and y[3].isfinite().all()


CASES = [(1, 5, 40, ()), (3, 70, 300, (30, 40)), (20, 40, 64, ()), (70, 130, 520, (100, 20, 10)), (150, 33, 129, ())]


@pytest.mark.parametrize(("m", "n", "k", "parts"), CASES)
def test_product(m, n, k, parts):
    x, weight, bias = made(3, m, k), made(4, n, k), made(5, n)
    if parts:
        weight[: parts[0]] *= 20
    codes, scale = packed(weight, parts)
    q, one = levels(x)
    expected = (q @ unpack(codes, k).double().t()) * one * scale.double()
    torch.testing.assert_close(bit_linear(x, codes, scale).double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(bit_linear_reference(x, codes, scale).double(), expected, rtol=1e-6, atol=1e-6)
    for got in (bit_linear(x, codes, scale, bias), bit_linear_reference(x, codes, scale, bias)):
        close(got, q * one @ ternary(weight, parts).t() + bias.double())


def test_sums_are_exact():
    """The largest that 4095 columns can give: every level 127 and every weight 1."""
    y = bit_linear(torch.full((2, 4095), 127.0), pack(torch.ones(3, 4095, dtype=torch.int8)), torch.ones(3))
    assert (y == 127 * 4095).all()


@pytest.mark.parametrize("parts", [(), (50, 20)])
def test_the_training_form(parts):
    """What was trained is what is run: output, and gradients of x and bias."""
    layer = BitLinear(90, 70, bias=True, parts=parts)
    with torch.no_grad():
        layer.weight[50:] *= 7
    codes, scale = packed(layer.weight, parts)
    x, grad, bias = (
        made(6, 2, 40, 90).requires_grad_(),
        made(7, 2, 40, 70),
        layer.bias.detach().clone().requires_grad_(),
    )
    y = layer(x)
    y.backward(grad)
    again = x.detach().clone().requires_grad_()
    got = bit_linear(again, codes, scale, bias)
    got.backward(grad)
    close(got, y.detach().double())
    close(again.grad, grad.double() @ ternary(layer.weight, parts))
    close(again.grad, x.grad.double())
    close(bias.grad, layer.bias.grad.double())


@pytest.mark.parametrize(("m", "n", "k"), [(1, 5, 40), (70, 150, 330)])
def test_gradient_of_x(m, n, k):
    weight, dy = made(8, n, k), made(9, n, m).t()
    x = made(3, m, k).requires_grad_()
    bit_linear(x, *packed(weight)).backward(dy)
    close(x.grad, dy.double() @ ternary(weight))


def test_half_precision_and_shapes():
    x, (codes, scale) = made(3, 2, 9, 80).half().requires_grad_(), packed(made(4, 21, 80))
    y = bit_linear(x, codes, scale)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == torch.float16 and y.shape == (2, 9, 21) and x.grad.shape == x.shape
    q, one = levels(x.detach())
    close(y.detach(), (q @ unpack(codes, 80).double().t()) * one * scale.double(), 1e-3)
    close(x.grad, (scale.double()[:, None] * unpack(codes, 80).double()).sum(0).expand(2, 9, 80), 1e-3)
    assert bit_linear(x[:0], codes, scale).shape == (0, 9, 21)
    with pytest.raises(ValueError, match="32 bytes are not of 300 columns"):
        bit_linear(made(3, 2, 300), codes, scale)


def test_fits():
    check_fits("hybridc.runtime.kernels.ternary_gemm")
