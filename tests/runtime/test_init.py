"""Fillers against the distributions that they claim."""

import math

import pytest
import torch
from torch.nn import functional as F

from hybridc.runtime import init


def filled(filler, *shape):
    tensor = torch.full(shape, torch.nan)
    filler(tensor, torch.Generator().manual_seed(0))
    return tensor


def test_normal_and_uniform():
    x = filled(init.normal(0.3), 40000)
    assert x.mean().item() == pytest.approx(0, abs=0.006) and x.std().item() == pytest.approx(0.3, rel=0.02)
    y = filled(init.uniform(0.5), 40000)
    assert y.abs().max() <= 0.5 and y.std().item() == pytest.approx(1 / math.sqrt(12), rel=0.02)


def test_constants():
    assert (filled(init.zeros(), 3) == 0).all() and (filled(init.ones(), 3) == 1).all()


def test_a_log_is_uniform_in_a():
    a = filled(init.a_log(1.0, 16.0), 40000).exp()
    assert a.min() >= 1 - 1e-5 and a.max() <= 16 + 1e-4
    assert a.mean().item() == pytest.approx(8.5, rel=0.02) and a.std().item() == pytest.approx(15 / 12**0.5, rel=0.02)


def test_a_log_range_is_s4d_real():
    torch.testing.assert_close(filled(init.a_log_range(), 3, 5).exp(), torch.arange(1.0, 6.0).expand(3, 5))


def test_dt_bias_is_the_inverse_softplus_of_a_log_uniform_step():
    dt = F.softplus(filled(init.dt_bias(0.001, 0.1, 1e-4), 40000))
    assert dt.min() >= 0.001 * 0.999 and dt.max() <= 0.1 * 1.001
    assert dt.log().mean().item() == pytest.approx((math.log(0.001) + math.log(0.1)) / 2, rel=0.01)
    floored = F.softplus(filled(init.dt_bias(0.001, 0.1, 0.05), 4000))
    assert floored.min() >= 0.05 * 0.999 and (floored < 0.0501).float().mean() > 0.5


def test_softplus_decay_is_uniform_in_the_decay_of_an_open_gate():
    a = torch.exp(-8.0 * F.softplus(filled(init.softplus_decay(0.9, 0.999, 8.0), 40000)))
    assert a.min() >= 0.9 - 1e-5 and a.max() <= 0.999 + 1e-5
    assert a.mean().item() == pytest.approx(0.9495, abs=1e-3)
    assert a.std().item() == pytest.approx(0.099 / 12**0.5, rel=0.02)


@pytest.mark.parametrize(
    "filler",
    [
        init.normal(0.02),
        init.uniform(0.5),
        init.zeros(),
        init.a_log(1.0, 16.0),
        init.dt_bias(0.001, 0.1, 1e-4),
        init.softplus_decay(0.9, 0.999, 8.0),
    ],
)
def test_a_filler_is_written_as_it_is_made(filler):
    assert eval(repr(filler), vars(init)) == filler
    with pytest.raises(AttributeError):
        filler.std = 1.0


def test_dtype_changes_no_draw():
    for filler in (init.normal(0.02), init.dt_bias(0.001, 0.1, 1e-4)):
        half = torch.empty(9, dtype=torch.bfloat16)
        filler(half, torch.Generator().manual_seed(0))
        assert torch.equal(half, filled(filler, 9).to(torch.bfloat16))
