"""FP8 operands sorted by expert, and scales of all of an expert's rows, against the formats' definition in numpy."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from hybridc.runtime.kernels.experts_quantize import permute_quantized, quantize_by_expert
from hybridc.runtime.kernels.moe import sort_by_expert
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.kernels.fp8_model import E4M3, E5M2, equal, quantized
from tests.runtime.ops.cases import made


def test_permuting():
    ids = torch.tensor([[0, -1], [2, 0], [2, 3]])
    to = sort_by_expert(ids, 4, 4)
    data, scale = made(1, 3, 40).to(E4M3), made(2, 2, 3).t()
    rows, factors = permute_quantized(data, scale, to)
    assert factors.stride(0) == 1
    for row in range(to.rows):
        owner = (to.places == row).any(1)
        assert torch.equal(rows[row].float(), data[owner].float().sum(0))
        assert torch.equal(factors[row], scale[owner].sum(0))


@pytest.mark.parametrize(("format", "pow2"), [(E4M3, False), (E5M2, True)])
@pytest.mark.parametrize("whole", [True, False])
def test_scales_of_all_rows(whole, format, pow2):
    offsets, t, c = [0, 140, 140, 144], 150, 5
    x = made(1, t, c).mul(torch.arange(1, c + 1))
    data, scale, data_t, scale_t = quantize_by_expert(
        x, torch.tensor(offsets, dtype=torch.int32), format, whole=whole, pow2=pow2
    )
    assert data_t.shape == (c, 160)
    for e, (begin, end) in enumerate(pairwise(offsets)):
        part = x[begin:end].numpy()
        tiles = range(begin // 128 + e, begin // 128 + e + -(-(end - begin) // 128))
        for at in range(c):
            numbers, factor = quantized(part if whole else part[:, at], format, pow2)
            numbers = numbers[:, at] if whole else numbers
            assert equal(data_t[at, begin:end], numbers)
            assert all(scale_t[at, tile] == np.float32(factor) for tile in tiles)
            if whole:
                assert equal(data[begin:end, at], numbers) and (scale[begin:end] == np.float32(factor)).all()


def test_fits():
    check_fits("hybridc.runtime.kernels.experts_quantize")
