"""Quantized results: against the numbers that a format has, listed, and the factors by their definition, in fp64."""

import pytest
import torch

from hybridc.runtime.kernels import rowwise
from tests.codegen.triton.emitted import kernels
from tests.codegen.triton.unfused import EPS

E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
E4M3 = E4M3[E4M3.isfinite()].unique()
"""All numbers of the format; the largest is 448."""


def nearest(x, numbers):
    """The nearest of the numbers, and how far the second nearest is from being as near."""
    apart = (x[..., None] - numbers).abs()
    two = apart.topk(2, largest=False)
    return numbers[two.indices[..., 0]], two.values[..., 1] - two.values[..., 0]


def check(codes, factors, exact, numbers, largest, smallest=0.0):
    """`codes` [rows, blocks, n] and `factors` [rows, blocks] against the exact values."""
    amax = exact.abs().amax(-1).clamp(min=smallest)
    wanted = torch.where(amax > 0, amax / largest, torch.ones_like(amax))
    torch.testing.assert_close(factors.double(), wanted, rtol=2e-6, atol=0)
    scaled = exact / wanted[..., None]
    best, margin = nearest(scaled, numbers)
    clear = margin > 1e-5 * scaled.abs()
    assert clear.double().mean() > 0.99
    assert torch.equal(codes.double()[clear], best[clear])


def rms(x, weight):
    x = x.double()
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight.double()


@pytest.fixture(params=[16384, 128], ids=["one block", "several blocks"])
def blocks(request, monkeypatch):
    monkeypatch.setattr(rowwise, "LARGEST", request.param)


def values(rows=6, width=300):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, width, generator=generator) * torch.logspace(-3, 3, rows)[:, None]
    x[0] = 0.0
    return x, 1 + 0.3 * torch.randn(width, generator=generator)


def parts(made):
    """What of a value was stored, and what stands for it in autograd."""
    assert made.shape == made.data.shape and made.dtype == made.carrier.dtype and made.device == made.data.device
    return made.data, made.scale, made.carrier


def test_e4m3_in_blocks(blocks):
    x, weight = values()
    y, scale, carrier = parts(kernels().rmsnorm_e4m3_block(x, weight, eps=EPS))
    assert y.dtype == torch.float8_e4m3fn and scale.shape == (6, 3) and scale.dtype == torch.float32
    assert carrier.shape == y.shape and carrier.untyped_storage().nbytes() == 4
    pad = torch.nn.functional.pad
    exact = pad(rms(x, weight), (0, 84)).unflatten(-1, (3, 128))
    check(pad(y.double(), (0, 84)).unflatten(-1, (3, 128)), scale, exact, E4M3, 448.0)
    assert torch.equal(scale[0], torch.ones(3))  # zeros


def test_e4m3_by_row(blocks):
    x, weight = values()
    y, scale, _ = parts(kernels().rmsnorm_e4m3_row(x, weight, eps=EPS))
    assert scale.shape == (6, 1)
    check(y.double()[:, None], scale, rms(x, weight)[:, None], E4M3, 448.0)


def test_eight_bits(blocks):
    x, weight = values()
    y, scale, _ = parts(kernels().rmsnorm_int8_row(x, weight, eps=EPS))
    assert y.dtype == torch.int8
    whole = torch.arange(-128, 128).double()
    check(y.double()[:, None], scale, rms(x, weight)[:, None], whole, 127.0, 1e-5)


def test_gated_activation_in_blocks(blocks):
    gate_up, _ = values(width=520)
    y, scale, _ = parts(kernels().silu_glu_e4m3_block(gate_up))
    gate, up = gate_up.double().chunk(2, -1)
    pad = torch.nn.functional.pad
    exact = pad(torch.nn.functional.silu(gate) * up, (0, 124)).unflatten(-1, (3, 128))
    check(pad(y.double(), (0, 124)).unflatten(-1, (3, 128)), scale, exact, E4M3, 448.0)


def test_infinity_and_nan():
    """An infinity's block has the factor 1: what is finite in it stays what it is, and the infinity saturates. A NaN
    stays one, and has no say in its block's factor. As the emulation has it, to the last bit."""
    gate_up = torch.full((1, 512), 3.0)
    gate_up[0, 3], gate_up[0, 256 + 200] = float("inf"), float("nan")
    y, scale, _ = parts(kernels().silu_glu_e4m3_block(gate_up))
    value = 3.0 * torch.sigmoid(torch.tensor(3.0)) * 3.0
    assert y[0, 3].item() == 448.0 and y[0, 200].isnan()
    torch.testing.assert_close(scale[0], torch.stack([torch.tensor(1.0), value / 448.0]), rtol=1e-6, atol=0)
    others = torch.ones(128, dtype=torch.bool)
    others[3] = False
    assert (y[0, :128].float()[others] == value.to(torch.float8_e4m3fn).float()).all()
    others = torch.ones(128, dtype=torch.bool)
    others[72] = False
    assert (y[0, 128:].float()[others] == 448.0).all()


def test_no_factor_is_subnormal():
    """A device may take subnormal numbers for 0."""
    for small in (1e-38, 1e-42):
        for name in ("silu_glu_e4m3_block", "silu_glu_e4m3_row"):
            _, scale, _ = parts(getattr(kernels(), name)(torch.tensor([[40.0, 40.0, small, small / 3]])))
            assert scale.min() >= torch.finfo(torch.float32).tiny


@pytest.mark.parametrize("large", [1e-36, 1e-30, 1e38])
def test_extreme_factors(large):
    codes = parts(kernels().silu_glu_e4m3_row(torch.tensor([[100.0, 100.0, large / 100, large / 200]])))
    y, scale = codes[0].double(), codes[1].double()
    torch.testing.assert_close((y * scale)[0, 0], torch.tensor(large, dtype=torch.float64), rtol=6.3e-2, atol=0)


def test_the_norm_that_is_stored_beside_its_quantized_sum():
    x, weight = values()
    h, made = kernels().add_rmsnorm_e4m3_row(x, 0.5 * x, weight, eps=EPS)
    y, scale, _ = parts(made)
    assert torch.equal(h, 1.5 * x)
    check(y.double()[:, None], scale, rms(1.5 * x, weight)[:, None], E4M3, 448.0)


def test_stored_values_computed_anew():
    x, weight = values()
    exact = rms(1.5 * x, weight)
    for made in (
        kernels().add_rmsnorm_e4m3_row(x, 0.5 * x, weight, eps=EPS)[1],
        kernels().rmsnorm_int8_row(1.5 * x, weight, eps=EPS),
    ):
        torch.testing.assert_close(made.again().double(), exact, rtol=1e-5, atol=1e-6)
    gate_up, _ = values(width=520)
    gate, up = gate_up.double().chunk(2, -1)
    again = kernels().silu_glu_e4m3_block(gate_up).again()
    torch.testing.assert_close(again.double(), torch.nn.functional.silu(gate) * up, rtol=1e-5, atol=1e-6)
