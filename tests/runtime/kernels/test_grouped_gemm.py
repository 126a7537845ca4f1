"""Grouped products against those of each expert in float64."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from hybridc.runtime.kernels import grouped_gemm
from hybridc.runtime.kernels.grouped_gemm import grouped_linear, grouped_linear_reference, sum_by_expert
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops.cases import close, gradients, made

CASES = [
    ([0, 3, 3, 10], 10, 7, 5),  # an expert without rows, odd sizes
    ([0, 70, 150, 152], 160, 130, 70),  # more than one tile each way, rows of nobody
    ([0, 1], 1, 1, 1),
    ([0, 0, 0], 4, 8, 16),  # rows of nobody alone
    ([0, 4, 8, 8, 12, 20], 24, 16, 32),
]


def expected(x, weight, offsets, bias):
    """In float64, by definition; rows behind the last offset are zeros."""
    y = x.new_zeros(x.shape[0], weight.shape[1]) + 0 * sum(t.sum() for t in (x, weight, bias) if t is not None)
    for e, (begin, end) in enumerate(pairwise(offsets)):
        for row in range(begin, end):
            y = y.index_put((torch.tensor([row]),), weight[e] @ x[row] + (0 if bias is None else bias[e]))
    return y


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("offsets", "rows", "n", "k"), CASES)
def test_values_and_gradients(offsets, rows, n, k, biased):
    experts, at = len(offsets) - 1, torch.tensor(offsets, dtype=torch.int32)
    given = [made(1, rows, k), made(2, experts, n, k), made(3, experts, n)][: 2 + biased]

    def ours(x, weight, bias=None):
        return grouped_linear(x, weight, at, bias)

    def theirs(x, weight, bias=None):
        return expected(x, weight, offsets, bias)

    wide = [i.double() for i in given]
    close(ours(*given), theirs(*wide))
    close(grouped_linear_reference(*given[:2], at, *given[2:]), theirs(*wide))
    for got, want in zip(gradients(ours, given), gradients(theirs, wide), strict=True):
        close(got, want)


def test_half():
    at = torch.tensor([0, 70, 150], dtype=torch.int32)
    x, weight = made(1, 160, 70).half(), made(2, 2, 130, 70).half()
    y = grouped_linear(x, weight, at)
    assert y.dtype == torch.float16
    close(y, expected(x.double(), weight.double(), at.tolist(), None), 1e-3)


def test_strides():
    at = torch.tensor([0, 3, 3, 10], dtype=torch.int32)
    x, weight = made(1, 5, 12).t(), made(2, 5, 3, 7).permute(1, 2, 0)
    assert torch.equal(grouped_linear(x, weight, at), grouped_linear(x.contiguous(), weight.contiguous(), at))
    # a gradient that a sum has made has no strides
    x = x.clone().requires_grad_()
    grouped_linear(x, weight, at).sum().backward()
    close(x.grad, torch.cat([weight[e].sum(0, keepdim=True).expand(r, -1) for e, r in ((0, 3), (2, 7), (2, 0))]
                            + [torch.zeros(2, 5)]).double())  # fmt: skip


@pytest.mark.parametrize("experts", [[0, 4, 4, 12], [0, 8, 12, 16]])
def test_torchs_products(monkeypatch, experts):
    """Those of torch give the same where they are taken, with whatever rows there are behind the last offset."""
    at = torch.tensor(experts, dtype=torch.int32)
    x, weight, grad = made(1, 16, 8), made(2, 3, 12, 8), made(3, 16, 12)
    found, calls = [], []
    monkeypatch.setattr(F, "grouped_mm", lambda *a, call=F.grouped_mm, **o: calls.append(a) or call(*a, **o))
    for fast in (False, True):
        monkeypatch.setattr(grouped_gemm, "has_torchs", grouped_gemm.fits_torchs if fast else lambda *_: False)
        given = x.clone().requires_grad_(), weight.clone().requires_grad_()
        y = grouped_linear(*given, at)
        found.append((y, *torch.autograd.grad(y, given, grad)))
        assert len(calls) == 3 * fast
    end = experts[-1]
    (y, dx, dw), (y_torch, dx_torch, dw_torch) = found
    close(y_torch[:end], y[:end].double())
    close(dx_torch[:end], dx[:end].double())
    close(dw_torch, dw.double())


def test_what_torch_takes():
    weight = made(1, 2, 8, 4)
    assert grouped_gemm.fits_torchs(made(2, 3, 4), weight) and not grouped_gemm.has_torchs(made(2, 3, 4), weight)
    for rows, other in ((made(2, 0, 4), weight), (made(2, 3, 4), weight.transpose(1, 2)),
                        (made(2, 3, 6), made(1, 2, 8, 6)), (made(2, 3, 4), made(1, 65)[1:].view(2, 8, 4))):  # fmt: skip
        assert not grouped_gemm.fits_torchs(rows, other)


def test_sums():
    rows = made(1, 70, 200).t()
    found = sum_by_expert(rows, torch.tensor([0, 90, 90, 150], dtype=torch.int32))
    close(found, torch.stack([rows[:90].double().sum(0), 0 * rows[0].double(), rows[90:150].double().sum(0)]))


def test_fits():
    check_fits("hybridc.runtime.kernels.grouped_gemm")
