"""Element formats, scales and scaled products against their definitions in float64, and against torch's own."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hybridc.runtime.quant.elements import E4M3, E5M2, ELEMENTS
from hybridc.runtime.quant.scaling import Scaling, largest, quantize, scaled_mm
from tests.runtime.quant import model

BLOCKS = [(0, 0), (1, 0), (1, 128), (128, 128), (1, 32), (4, 8)]


@pytest.mark.parametrize("element", ELEMENTS.values(), ids=lambda e: e.name)
def test_every_number_of_a_format_is_on_its_grid(element):
    """All 256 codes: what torch reads them as, the model rounds to itself, and so does the cast."""
    numbers = torch.arange(256, dtype=torch.uint8).view(element.dtype).float()
    finite = numbers[numbers.isfinite()]
    assert finite.abs().max() == element.largest
    assert torch.equal(element.cast(finite).float(), finite)
    assert [model.on_grid(v, element.name) for v in finite.tolist()] == finite.tolist()


@given(st.sampled_from(sorted(ELEMENTS)), st.floats(-1e5, 1e5, width=32))
def test_casts_round_to_the_nearest_even(name, x):
    assert ELEMENTS[name].cast(torch.tensor([x])).item() == model.on_grid(x, name)


@pytest.mark.parametrize("element", [E4M3, E5M2], ids=lambda e: e.name)
def test_casts_saturate(element):
    found = element.cast(torch.tensor([math.inf, -math.inf, 1e30, -1e30, math.nan])).float()
    assert found[:4].tolist() == [element.largest, -element.largest] * 2
    assert found[4].isnan()


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("shape", [(5, 70), (130, 129), (1, 1), (128, 256)])
def test_quantizing_is_what_is_defined(blocks, power, shape):
    torch.manual_seed(0)
    x = torch.randn(shape) * torch.randn(shape[0], 1).exp()
    got = quantize(x, E4M3, Scaling(*blocks, power))
    tolerance = 0 if power else 2e-7  # the last product is rounded to fp32
    wanted = model.rounded(x, "e4m3", *blocks, power)
    torch.testing.assert_close(got.dequantize().double(), wanted, rtol=tolerance, atol=0)
    assert torch.equal(got.transpose().dequantize(), got.dequantize().t())
    if power:
        assert torch.equal(torch.frexp(got.factors)[0], torch.full_like(got.factors, 0.5))


def test_edges_are_padded_with_zeros():
    """A large last number raises the scale of its own block alone (NeMo-RL pads with the last number instead)."""
    x = torch.ones(3, 130)
    x[2, 129] = 448.0
    got = quantize(x, E4M3, Scaling(1, 128))
    assert got.values.shape == (3, 256) and not got.values[:, 130:].float().any()
    torch.testing.assert_close(got.factors, torch.tensor([[1 / 448, 1 / 448], [1 / 448, 1 / 448], [1 / 448, 1.0]]))


@pytest.mark.parametrize("power", [False, True])
def test_odd_amaxes(power):
    scaling = Scaling(1, 4, power)
    rows = torch.tensor(
        [[0.0, 0, 0, 0], [math.inf, 1, -500, 2], [math.nan, 1, 2, 600], [1e-45, 0, 0, 0], [3e38, 0, 0, 1]]
    )
    got = quantize(rows, E4M3, scaling)
    assert got.factors[:2].tolist() == [[1.0]] * 2
    torch.testing.assert_close(got.factors[2, 0].item(), 2.0 if power else 600 / 448)  # of what is a number
    back = got.dequantize()
    assert back[0].tolist() == [0.0] * 4
    assert back[1].tolist() == [448.0, 1.0, -448.0, 2.0]
    assert back[2, 0].isnan()
    torch.testing.assert_close(back[2, 1:], torch.tensor([1.0, 2.0, 600.0]), rtol=2**-4, atol=0)
    assert got.factors.isfinite().all() and (got.factors >= 2.0**-126).all()
    assert back[4].isfinite().all() and abs(back[4, 0].item() / 3e38 - 1) < 0.07


def test_powers_of_two_saturate_nothing():
    torch.manual_seed(0)
    above = torch.tensor(448.0).nextafter(torch.tensor(449.0))  # over 448 it is 1 in fp32
    for x in (torch.randn(64, 64), above.expand(1, 32), torch.full((1, 32), 448.0), torch.full((1, 32), 449.0)):
        got = quantize(x, E4M3, Scaling(1, 32, power=True))
        assert (got.factors[..., None] * 448 >= x.abs().view(x.shape[0], -1, 32)).all()
        torch.testing.assert_close(got.dequantize(), x, rtol=2**-4, atol=2**-9 * got.factors.max().item())


@pytest.mark.parametrize(
    ("left", "right"), [((0, 0), (0, 0)), ((1, 0), (1, 0)), ((1, 128), (128, 128)), ((1, 128), (1, 128))]
)
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("shape", [(3, 5, 70), (130, 129, 300), (2, 3, 128)])
def test_scaled_products(left, right, power, shape):
    torch.manual_seed(0)
    rows, columns, depth = shape
    x, y = torch.randn(rows, depth), torch.randn(columns, depth)
    got = scaled_mm(quantize(x, E4M3, Scaling(*left, power)), quantize(y, E4M3, Scaling(*right, power)))
    wanted = model.rounded(x, "e4m3", *left, power) @ model.rounded(y, "e4m3", *right, power).t()
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", [(0, 0), (1, 0)])
def test_torch_multiplies_alike(blocks):
    """torch's `_scaled_mm` has the recipes with one scale for a tensor or a row."""
    torch.manual_seed(0)
    a, b = (quantize(torch.randn(n, 64), E4M3, Scaling(*blocks)) for n in (32, 48))
    scale_a = a.factors if blocks[0] else a.factors[0, 0]
    scale_b = b.factors.t() if blocks[0] else b.factors[0, 0]
    theirs = torch._scaled_mm(a.values, b.values.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.float32)
    torch.testing.assert_close(scaled_mm(a, b), theirs, rtol=1e-5, atol=1e-5)


def test_blocks_that_do_not_fit_are_refused():
    x = torch.ones(4, 256)
    with pytest.raises(ValueError, match="128 and 32"):
        scaled_mm(quantize(x, E4M3, Scaling(1, 128)), quantize(x, E4M3, Scaling(1, 32)))


def test_nothing_is_quantized_to_nothing():
    for blocks in BLOCKS:
        got = quantize(torch.zeros(0, 16), E4M3, Scaling(*blocks))
        assert got.dequantize().shape == (0, 16)
        assert largest(torch.zeros(0, 16), Scaling(*blocks)).sum() == 0
