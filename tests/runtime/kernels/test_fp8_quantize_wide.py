"""FP8 kernels with wide groups against the formats' own numbers, to the last bit."""

import pytest
import torch

from hybridc.runtime.kernels import fp8_quantize_wide
from hybridc.runtime.kernels.fp8_quantize_wide import quantize_rows, quantize_tensor
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.kernels.fp8_model import E4M3, LARGEST, equal, nearest, quantized
from tests.runtime.kernels.test_fp8_quantize import FORMATS, SCALES, made


def check_rows(x, data, scale, format, pow2):
    assert data.shape == x.shape and scale.shape == (*x.shape[:-1], 1)
    for row, got, one in zip(x.flatten(0, -2).numpy(), data.flatten(0, -2), scale.flatten(), strict=True):
        expected, wanted = quantized(row, format, pow2)
        assert equal(got, expected) and one == wanted


@SCALES
@FORMATS
def test_rows(format, pow2):
    x = made(2, 3, 300)
    x[0, 0] = 0
    x[0, 1, 7], x[1, 1, 7], x[1, 2, 9] = torch.nan, torch.inf, -torch.inf
    check_rows(x, *quantize_rows(x, format, pow2=pow2), format, pow2)


@SCALES
@FORMATS
def test_columns_of_a_transposed_view(format, pow2):
    x = made(260, 140)
    x[3, 5], x[200, 5], x[:, 9] = torch.nan, torch.inf, 0
    data, scale = quantize_rows(x.t(), format, pow2=pow2)
    check_rows(x.t(), data, scale, format, pow2)
    assert data.is_contiguous()


def test_rows_too_long_for_registers(monkeypatch):
    monkeypatch.setattr(fp8_quantize_wide, "LONGEST", 64)
    x = made(5, 300)
    check_rows(x, *quantize_rows(x), E4M3, False)
    assert quantize_rows(made(0, 8))[1].shape == (0, 1)


@SCALES
@FORMATS
@pytest.mark.parametrize("shape", [(130, 260), (3, 5, 7)])
def test_tensors(shape, format, pow2):
    x = made(*shape)
    data, scale = quantize_tensor(x, format, pow2=pow2)
    expected, one = quantized(x.numpy(), format, pow2)
    assert equal(data, expected) and scale.shape == (1,) and scale == one


def test_transposed_tensor():
    x = made(130, 70)
    data, _, turned = quantize_tensor(x, transposed=True)
    assert turned.is_contiguous() and equal(turned, data.t().double().numpy())
    view = made(70, 130).t()
    assert equal(quantize_tensor(view)[0], quantized(view.numpy(), E4M3)[0])


@FORMATS
def test_an_earlier_amax(format):
    """Delayed scaling: what is larger than it saturates, and the tensor's own amax is kept."""
    x = made(140, 200)
    x[7, 7] = torch.nan
    own = x.nan_to_num(0.0).abs().max()
    amax, seen = torch.tensor([own / 16]), torch.tensor([own / 2])
    data, scale = quantize_tensor(x, format, amax=amax, seen=seen)
    many = torch.tensor(LARGEST[format]) / amax
    assert equal(data, nearest((x * many).double().numpy(), format))
    assert torch.equal(scale, 1 / many) and seen == own
    assert (data.float().abs() == LARGEST[format]).sum() > 1
    quantize_tensor(x, format, amax=amax, seen=(more := own[None] * 2))
    assert more == own * 2
    quantize_tensor(x, format, seen=(less := own[None] / 4))
    assert less == own


@pytest.mark.parametrize("x", [torch.zeros(3, 4), torch.full((3, 4), torch.nan), torch.full((3, 4), torch.inf)])
def test_tensors_without_a_usual_amax(x):
    data, scale = quantize_tensor(x)
    assert equal(data, nearest(x.double().numpy(), E4M3)) and scale == 1
    quantize_tensor(x, seen=(seen := torch.tensor([2.0])))
    assert seen == (torch.inf if x.isinf().any() else 2)


def test_fits():
    check_fits("hybridc.runtime.kernels.fp8_quantize_wide")
