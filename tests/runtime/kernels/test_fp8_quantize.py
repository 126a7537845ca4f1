"""FP8 kernels against the formats' own numbers, to the last bit."""

import numpy as np
import pytest
import torch

from hybridc.runtime.kernels.expert_tiles import tiles
from hybridc.runtime.kernels.fp8_quantize import (
    quantize_blocks,
    quantize_both_ways,
    quantize_groups,
    quantize_reference,
)
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.kernels.fp8_model import E4M3, E5M2, LARGEST, equal, nearest, numbers, quantized

FORMATS = pytest.mark.parametrize("format", [E4M3, E5M2], ids=["e4m3", "e5m2"])
SCALES = pytest.mark.parametrize("pow2", [False, True], ids=["fp32", "pow2"])


def made(*shape, seed=0):
    """Numbers of many sizes, with zeros among them."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=made) * torch.exp2(torch.randn(*shape, generator=made) * 6)
    return x * (torch.rand(*shape, generator=made) > 0.1)


def check_groups(x, data, scale, format, pow2, group=128):
    """data and scale of x [T, C], a group of channels after the other."""
    x = x.float().numpy()
    for first in range(0, x.shape[1], group):
        for t, row in enumerate(x[:, first : first + group]):
            expected, one = quantized(row, format, pow2)
            assert equal(data[t, first : first + group], expected) and scale[t, first // group] == one


@FORMATS
def test_every_number_and_what_is_between(format):
    """Rows of which one number is the largest, so that the scale is 1 and the rest are seen as they are."""
    table = numbers(format)
    between = (table[1:] + table[:-1]) / 2
    near = np.concatenate([between * (1 + 2e-7), between * (1 - 2e-7)])
    all_of_them = np.concatenate([table, between, near, [2.0**-30, table[1] / 2, 1e-45, 0.0]]).astype(np.float32)
    x = np.zeros((-(-len(all_of_them) // 127), 128), dtype=np.float32)
    x[:, :127].flat[: len(all_of_them)] = all_of_them
    x[:, 127] = LARGEST[format]
    x[1::2] *= -1
    data, scale = quantize_groups(torch.from_numpy(x), format)
    assert (scale == 1).all() and equal(data, nearest(x.astype(np.float64), format))


@SCALES
@FORMATS
@pytest.mark.parametrize(("tokens", "channels", "group"), [(3, 128, 128), (130, 200, 128), (2, 5, 128), (5, 150, 32)])
def test_groups_of_channels(tokens, channels, group, format, pow2):
    x = made(tokens, channels)
    data, scale = quantize_groups(x, format, group=group, pow2=pow2)
    assert data.shape == x.shape and data.dtype == format and scale.shape == (tokens, -(-channels // group))
    assert scale.stride(0) == 1
    check_groups(x, data, scale, format, pow2, group)
    again, scales = quantize_reference(x, format, block=(1, group), pow2=pow2)
    assert equal(again, data.double().numpy()) and torch.equal(scale, scales)


def test_shapes_and_strides():
    x = made(2, 3, 5, 140)
    data, scale = quantize_groups(x)
    assert data.shape == x.shape and scale.shape == (2, 3, 5, 2)
    flat, scales = quantize_groups(x.view(30, 140))
    assert equal(data.view(30, 140), flat.double().numpy()) and torch.equal(scale.reshape(30, 2), scales)
    for view in (made(140, 30).t(), made(30, 280)[:, ::2], made(60, 140)[::2], made(30, 140).half()):
        check_groups(view, *quantize_groups(view), E4M3, False)
    assert quantize_groups(made(0, 128))[1].shape == (0, 1) and quantize_both_ways(made(0, 8))[3].shape == (8, 0)


@SCALES
@FORMATS
def test_zeros_infinities_and_nan(format, pow2):
    x = made(8, 128)
    inf, nan = torch.inf, torch.nan
    x[0] = 0
    x[1, 3], x[2, 4], x[3, 5] = inf, -inf, nan
    x[4, :2] = torch.tensor([inf, nan])
    x[5] = nan
    x[6] = x[6] / x[6].abs().max() * 1e-44
    x[7] = x[7] / x[7].abs().max() * 3.4e38
    assert 0 < x[6].abs().max() < 2e-44 and 3e38 < x[7].abs().max() < torch.inf
    data, scale = quantize_groups(x, format, pow2=pow2)
    check_groups(x, data, scale, format, pow2)
    assert (scale[[0, 1, 2, 4, 5]] == 1).all() and (scale[6:].log2() >= -126).all() and scale.isfinite().all()
    values, largest = data.float(), LARGEST[format]
    assert values[1, 3] == largest and values[2, 4] == -largest and values[4, 0] == largest
    assert values.isnan().sum() == 1 + 1 + 128 and values[3, 5].isnan()


@SCALES
def test_least_power_of_two(pow2):
    """An amax of the largest number is no reason for a scale over 1, and the next one up is."""
    x = torch.tensor([448.0, float(np.nextafter(np.float32(448), np.float32(1e9))), 449.0, 896.0, 224.0])
    _, scale = quantize_groups(x[:, None].expand(5, 128), pow2=pow2)
    assert not pow2 or scale[:, 0].tolist() == [1.0, 2.0, 2.0, 2.0, 0.5]
    assert pow2 or torch.allclose(scale[:, 0].double(), x.double() / 448, rtol=1e-7, atol=0)


@FORMATS
@pytest.mark.parametrize("group", [128, 32])
def test_both_ways(group, format):
    x = made(150, 140)
    data, scale, data_t, scale_t = quantize_both_ways(x, format, group=group)
    check_groups(x, data, scale, format, False, group)
    assert data_t.is_contiguous() and data_t.shape == (140, 160) and scale_t.shape == (140, -(-150 // group))
    check_groups(x.t(), data_t[:, :150], scale_t, format, False, group)
    assert not data_t[:, 150:].float().any()


@pytest.mark.parametrize("group", [128, 32])
@pytest.mark.parametrize(
    "offsets", [(0, 130, 130, 131, 260), (0, 0, 0, 200), (0, 128, 256), (0, 16, 96, 112, 250), (0, 260)]
)
def test_both_ways_of_experts(offsets, group):
    """Groups over tokens end where an expert does. The last rows may belong to no expert."""
    x = made(260, 40)
    more = torch.cat((x, torch.zeros(12, 40)))
    align = 16 if all(o % 16 == 0 for o in offsets[:-1]) else 1
    given = torch.tensor(offsets, dtype=torch.int32)
    data, scale, data_t, scale_t = quantize_both_ways(x, pow2=True, group=group, offsets=given, align=align)
    check_groups(x, data, scale, E4M3, True, group)
    assert data_t.shape == (40, 272) and scale_t.shape == (40, tiles(272, len(offsets) - 1, group))
    assert not data_t[:, 260:].float().any()
    used = []
    for e, (first, end) in enumerate(zip(offsets, (*offsets[1:], 272), strict=True)):
        slot = first // group + e
        check_groups(more[first:end].t(), data_t[:, first:end], scale_t[:, slot:], E4M3, True, group)
        used += range(slot, slot - (-(end - first) // group))
    assert len(used) == len(set(used)) and max(used) < scale_t.shape[1]
    assert (scale_t[:, sorted(set(range(scale_t.shape[1])) - set(used))] == 1).all()


@SCALES
@FORMATS
@pytest.mark.parametrize("shape", [(130, 260), (128, 128), (3, 7), (2, 3, 40, 130)])
def test_blocks(shape, format, pow2):
    w = made(*shape)
    data, scale, turned, scale_t = quantize_blocks(w, format, pow2=pow2, transposed=True)
    blocks = [-(-n // 128) for n in shape[-2:]]
    assert data.shape == w.shape and scale.shape == (*shape[:-2], *blocks) and scale_t.shape[-1] == blocks[0]
    flat, values, scales = (t.reshape(-1, *t.shape[-2:]) for t in (w, data, scale))
    for e in range(len(flat)):
        for n in range(blocks[0]):
            for k in range(blocks[1]):
                at = (slice(128 * n, 128 * n + 128), slice(128 * k, 128 * k + 128))
                expected, one = quantized(flat[e][at].numpy(), format, pow2)
                assert equal(values[e][at], expected) and scales[e, n, k] == one
        again, found = quantize_reference(flat[e], format, block=(128, 128), pow2=pow2)
        assert equal(again, values[e].double().numpy()) and torch.equal(found, scales[e])
    assert turned.is_contiguous() and equal(turned, data.transpose(-1, -2).double().numpy())
    assert torch.equal(scale_t, scale.transpose(-1, -2))
    assert len(quantize_blocks(w, format)) == 2


def test_an_edge_has_the_amax_of_what_is_there():
    """A last number larger than its neighbours does not reach into other blocks, nor what lies behind the tensor."""
    whole = torch.full((140, 300), 1e6)
    w = whole[:132, :260]
    w.fill_(1.0)
    w[-1, -1] = 100.0
    _, scale = quantize_blocks(w)
    expected = torch.ones(2, 3)
    expected[1, 2] = 100
    torch.testing.assert_close(scale, expected / 448)


def test_fits():
    check_fits("hybridc.runtime.kernels.fp8_quantize")
