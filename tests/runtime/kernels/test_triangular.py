"""Inverses of triangular matrices inside kernels, against float64."""

import pytest
import torch
import triton
import triton.language as tl

from hybridc.runtime.kernels.triangular import unit_lower_inverse
from tests.runtime.ops.cases import close, made


@triton.jit
def _inverse(a, out, L: tl.constexpr):
    at = tl.arange(0, L)
    place = at[:, None] * L + at[None, :]
    tl.store(out + place, unit_lower_inverse(tl.load(a + place), L))


def inverse(a):
    out = torch.empty_like(a)
    _inverse[(1,)](a, out, L=a.shape[0])
    return out


@pytest.mark.parametrize("size", [16, 32, 64])
def test_inverse(size):
    a = made(1, size, size).tril(-1) / 4
    close(inverse(a), torch.linalg.inv(torch.eye(size).double() + a.double()), 1e-6)


def test_powers_that_no_float_holds():
    """All ones below the diagonal: the inverse has 1 on the diagonal and -1 right below, powers up to 10^18."""
    ones = torch.ones(64, 64).tril(-1)
    assert torch.equal(inverse(ones), torch.eye(64) - torch.ones(63).diag(-1))
