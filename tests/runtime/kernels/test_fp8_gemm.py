"""FP8 products against those of the dequantized operands in float64."""

from itertools import pairwise

import pytest
import torch

from hybridc.runtime.kernels import fp8_gemm as fp8_gemm_file
from hybridc.runtime.kernels.expert_tiles import tiles
from hybridc.runtime.kernels.fp8_gemm import (
    fp8_gemm,
    fp8_gemm_reference,
    fp8_grouped_gemm,
    fp8_grouped_weight_gradient,
)
from hybridc.runtime.kernels.fp8_quantize import quantize_blocks, quantize_both_ways, quantize_groups
from hybridc.runtime.kernels.fp8_quantize_wide import quantize_rows, quantize_tensor
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.kernels.fp8_model import E4M3, E5M2


def numbers(*shape, format=E4M3, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul(9).to(format)


def scales(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 50)).exp2()


def wide(data, scale, rows=1, group=128):
    """data · scale, fp64, of [M, K] with a scale for each rows x group block."""
    scale = scale.double().repeat_interleave(rows, 0).repeat_interleave(group, 1)
    return data.double() * scale[: data.shape[0], : data.shape[1]]


def check(y, left, right):
    """y within fp32's rounding of left rightᵀ, fp64, counted in the sum of the products' sizes."""
    assert y.shape == (left.shape[0], right.shape[0])
    worst = (y.double() - left @ right.t()).abs() / (left.abs() @ right.abs().t()).clamp(min=1e-30)
    assert not y.numel() or worst.max() < 1e-6, worst.max()


SHAPES = [(3, 5, 7), (16, 130, 256), (40, 128, 300), (130, 260, 384), (1, 1, 128), (150, 1, 129)]


@pytest.mark.parametrize("by_block", [True, False], ids=["128x128", "1x128"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_dense(m, n, k, by_block):
    a, b, g = numbers(m, k), numbers(n, k, seed=1), -(-k // 128)
    rows = -(-n // 128) if by_block else n
    a_scale, b_scale = scales(m, g), scales(rows, g, seed=1)
    y = fp8_gemm(a, a_scale, b, b_scale, out_dtype=torch.float32)
    check(y, wide(a, a_scale), wide(b, b_scale, 128 if by_block else 1))
    check(fp8_gemm_reference(a, a_scale, b, b_scale), wide(a, a_scale), wide(b, b_scale, 128 if by_block else 1))


@pytest.mark.parametrize(("left", "right"), [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2), (E5M2, E5M2)])
def test_formats_are_exact(left, right):
    """Small whole numbers and powers of two, so that no sum is rounded."""
    g = torch.Generator().manual_seed(2)
    a = torch.randint(-3, 4, (70, 300), generator=g).to(left)
    b = torch.randint(-3, 4, (135, 300), generator=g).to(right)
    a_scale = torch.randint(-3, 4, (70, 3), generator=g).float().exp2()
    b_scale = torch.randint(-3, 4, (2, 3), generator=g).float().exp2()
    expected = wide(a, a_scale) @ wide(b, b_scale, 128).t()
    assert torch.equal(fp8_gemm(a, a_scale, b, b_scale, out_dtype=torch.float32).double(), expected)
    assert torch.equal(fp8_gemm_reference(a, a_scale, b, b_scale).double(), expected)


def test_groups_of_32():
    a, b = numbers(20, 100), numbers(40, 100, seed=1)
    a_scale, b_scale = scales(20, 4), scales(40, 4, seed=1)
    y = fp8_gemm(a, a_scale, b, b_scale, group=32, out_dtype=torch.float32)
    check(y, wide(a, a_scale, group=32), wide(b, b_scale, group=32))


def test_one_scale_for_a_row_or_a_tensor():
    x, w = torch.randn(2, 9, 300), torch.randn(140, 300)
    for quantize in (quantize_rows, quantize_tensor):
        (a, a_scale), (b, b_scale) = quantize(x), quantize(w)
        y = fp8_gemm(a, a_scale, b, b_scale, out_dtype=torch.float32)
        left = (a.double() * a_scale.double()).view(18, 300)
        assert y.shape == (2, 9, 140)
        check(y.view(18, 140), left, b.double() * b_scale.double())
        flat = a_scale if a_scale.ndim == 1 else a_scale.view(18, 1)
        check(fp8_gemm_reference(a.view(18, 300), flat, b, b_scale), left, b.double() * b_scale.double())


def test_bias_type_shape_and_strides():
    a, b = numbers(2, 9, 256), numbers(140, 512, seed=1)[:, ::2]
    a_scale, b_scale, bias = scales(2, 9, 2), scales(2, 2, seed=1), torch.randn(140)
    y = fp8_gemm(a, a_scale, b, b_scale, bias=bias, out_dtype=torch.float32)
    product = fp8_gemm(a, a_scale, b, b_scale, out_dtype=torch.float32)
    check(product.view(18, 140), wide(a.view(18, 256), a_scale.view(18, 2)), wide(b, b_scale, 128))
    torch.testing.assert_close(y, product + bias)
    half = fp8_gemm(a, a_scale / 64, b, b_scale / 64, bias=bias, out_dtype=torch.float16)
    assert torch.equal(half, (product / 4096 + bias).half())
    turned = numbers(256, 18, seed=3).t()
    check(fp8_gemm(turned, a_scale.view(18, 2), b, b_scale, out_dtype=torch.float32),
          wide(turned, a_scale.view(18, 2)), wide(b, b_scale, 128))  # fmt: skip
    assert fp8_gemm(a[:0, 0], a_scale[:0, 0], b, b_scale).shape == (0, 140)


def test_scales_that_do_not_belong():
    a, b = numbers(4, 256), numbers(8, 256)
    for a_scale, b_scale in ((scales(4, 3), scales(1, 2)), (scales(3, 2), scales(1, 2)), (scales(4, 2), scales(5, 2))):
        with pytest.raises((ValueError, RuntimeError)):
            fp8_gemm(a, a_scale, b, b_scale)


def test_nan_stays_in_its_row():
    a, b = numbers(20, 200, format=E5M2), numbers(30, 200, seed=1)  # the interpreter's products know no NaN of E4M3
    a[3, 150] = torch.nan
    y = fp8_gemm(a, scales(20, 2), b, scales(1, 2), out_dtype=torch.float32)
    assert y[3].isnan().all() and y.isnan().sum() == 30


OFFSETS = [(0, 5, 5, 30, 31, 40), (0, 0, 40), (0, 128, 256, 300), (0, 300, 300), (0, 17), (0, 0, 0)]


@pytest.mark.parametrize("by_block", [True, False])
@pytest.mark.parametrize("offsets", OFFSETS)
def test_experts(offsets, by_block):
    """Behind the last offset are rows of no expert, with NaN in them."""
    n, k, e, m = 140, 200, len(offsets) - 1, offsets[-1] + 20
    a, b = numbers(m, k), numbers(e, n, k, seed=1)
    a[offsets[-1] :] = torch.nan
    a_scale, b_scale, bias = scales(m, 2), scales(e, 2 if by_block else n, 2, seed=1), torch.randn(e, n)
    given = torch.tensor(offsets, dtype=torch.int32)
    y = fp8_grouped_gemm(a, a_scale, b, b_scale, given, out_dtype=torch.float32)
    biased = fp8_grouped_gemm(a, a_scale, b, b_scale, given, bias=bias, out_dtype=torch.float32)
    for i, (first, end) in enumerate(pairwise(offsets)):
        rows = slice(first, end)
        check(y[rows], wide(a[rows], a_scale[rows]), wide(b[i], b_scale[i], 128 if by_block else 1))
        torch.testing.assert_close(biased[rows], y[rows] + bias[i])
    assert not y[offsets[-1] :].any() and not biased[offsets[-1] :].any()


@pytest.mark.parametrize("group", [128, 32])
@pytest.mark.parametrize("offsets", OFFSETS)
def test_experts_weight_gradient(offsets, group):
    n, k, e, t = 140, 70, len(offsets) - 1, offsets[-1] + 20
    given = torch.tensor(offsets, dtype=torch.int32)
    slots = tiles(t, e, group)
    a, b = numbers(n, t, format=E5M2), numbers(k, t, seed=1)
    a_scale, b_scale = scales(n, slots), scales(k, slots, seed=1)
    align = 16 if not any(o % 16 for o in offsets) else 1
    y = fp8_grouped_weight_gradient(a, a_scale, b, b_scale, given, group=group, align=align)
    assert y.shape == (e, n, k) and y.dtype == torch.float32
    for i, (first, end) in enumerate(pairwise(offsets)):
        tokens, slot = slice(first, end), slice(first // group + i, None)
        check(
            y[i], wide(a[:, tokens], a_scale[:, slot], group=group), wide(b[:, tokens], b_scale[:, slot], group=group)
        )
        assert first < end or not y[i].any()


def test_a_tile_ends_where_its_expert_does(monkeypatch):
    """The first program alone: what it does to the next expert's rows would be a race."""
    kernel, full = fp8_gemm_file._gemm_kernel, torch.full

    class First:
        def __getitem__(self, grid):
            return kernel[(1,)]

    monkeypatch.setattr(fp8_gemm_file, "_gemm_kernel", First())
    monkeypatch.setattr(torch, "empty", lambda shape, **options: full(shape, -7.0, **options))
    a, b, a_scale, b_scale = numbers(30, 128), numbers(2, 20, 128), scales(30, 1), scales(2, 1, 1)
    y = fp8_grouped_gemm(a, a_scale, b, b_scale, torch.tensor([0, 5, 30]).int(), out_dtype=torch.float32)
    check(y[:5], wide(a[:5], a_scale[:5]), wide(b[0], b_scale[0], 128))
    assert (y[5:] == -7).all()


def test_three_products_of_a_linear():
    """Quantized as the block128 recipe does: right in themselves, and within FP8's own error of autograd."""
    x, w, dy = torch.randn(150, 200), torch.randn(140, 200), torch.randn(150, 140)
    q, s, q_t, s_t = quantize_both_ways(x)
    g, t, g_t, t_t = quantize_both_ways(dy, E5M2)
    p, u, p_t, u_t = quantize_blocks(w, transposed=True)
    y = fp8_gemm(q, s, p, u, out_dtype=torch.float32)
    dx = fp8_gemm(g, t, p_t, u_t, out_dtype=torch.float32)
    dw = fp8_gemm(g_t, t_t, q_t, s_t, out_dtype=torch.float32)
    check(y, wide(q, s), wide(p, u, 128))
    check(dx, wide(g, t), wide(p, u, 128).t())
    check(dw, wide(g_t, t_t), wide(q_t, s_t))
    for got, expected, error in ((y, x @ w.t(), 0.04), (dx, dy @ w, 0.08), (dw, dy.t() @ x, 0.08)):
        assert (got - expected).norm() < error * expected.norm()


def test_three_products_of_experts():
    offsets, e = (0, 40, 40, 170, 200), 4
    x, w, dy = torch.randn(200, 150), torch.randn(e, 140, 150), torch.randn(200, 140)
    given = torch.tensor(offsets, dtype=torch.int32)
    q, s, q_t, s_t = quantize_both_ways(x, offsets=given)
    g, t, g_t, t_t = quantize_both_ways(dy, offsets=given)
    p, u, p_t, u_t = quantize_blocks(w, transposed=True)
    y = fp8_grouped_gemm(q, s, p, u, given, out_dtype=torch.float32)
    dx = fp8_grouped_gemm(g, t, p_t, u_t, given, out_dtype=torch.float32)
    dw = fp8_grouped_weight_gradient(g_t, t_t, q_t, s_t, given)
    for i, (first, end) in enumerate(pairwise(offsets)):
        rows = slice(first, end)
        again = quantize_groups(x[rows].t().contiguous()), quantize_groups(dy[rows].t().contiguous())
        check(y[rows], wide(q[rows], s[rows]), wide(p[i], u[i], 128))
        check(dx[rows], wide(g[rows], t[rows]), wide(p[i], u[i], 128).t())
        check(dw[i], wide(*again[1]), wide(*again[0]))


def test_fits():
    check_fits("hybridc.runtime.kernels.fp8_gemm")
