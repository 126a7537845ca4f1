"""Mamba's kernels against the recurrence in float64, token after token."""

from itertools import pairwise

import pytest
import torch

from hybridc.runtime.cache import Cache, MambaState
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.selective_scan import selective_scan
from hybridc.runtime.kernels.selective_scan_backward import SPLIT
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, close, gradients, made, packed, plain

BORDERS = [[0, 1, 9, 9, 42], [0, 0, 20, 21, 21]]


def inputs(rows, length, dim=5, size=3):
    dt = torch.rand(rows, length, dim, generator=torch.Generator().manual_seed(2))
    a = -(0.1 + 15 * torch.rand(dim, size, generator=torch.Generator().manual_seed(3)))
    return made(1, rows, length, dim), dt, a, made(4, rows, length, size), made(5, rows, length, size), made(6, dim)


def one(given, row, s=None, e=None):
    """A document's inputs out of a batch's."""
    u, dt, a, b, c, d = given
    return u[row, s:e], dt[row, s:e], a, b[row, s:e], c[row, s:e], d


def filled(initial):
    state = MambaState(initial.shape[0], conv=(1, 2), ssm=initial.shape[1:], device=CPU, dtype=torch.float32)
    state.ssm = initial.clone()
    return state


@pytest.mark.parametrize("length", [1, 16, 37])
def test_any_length(length):
    given = inputs(2, length)
    y = selective_scan(*given, plain(2, length))
    for row in range(2):
        close(y[row], ref.selective_scan(*one(given, row))[0])


@pytest.mark.parametrize("borders", BORDERS, ids=str)
def test_packed_documents_with_states(borders):
    given, initial = inputs(1, borders[-1]), made(8, len(borders) - 1, 5, 3)
    state = filled(initial)
    with torch.no_grad():
        y = selective_scan(*given, packed(borders, Cache([{"op": state}], len(borders) - 1, 50)), state)
    for n, (s, e) in enumerate(pairwise(borders)):
        if e > s:
            want, last = ref.selective_scan(*one(given, 0, s, e), initial[n])
            close(y[0, s:e], want)
            close(state.ssm[n], last)
        else:
            assert torch.equal(state.ssm[n], initial[n])


@pytest.mark.parametrize("pieces", [[40], [20, 1, 1, 1], [3, 9, 1, 17]], ids=str)
def test_a_cache_filled_in_pieces(pieces):
    total = sum(pieces)
    given = inputs(2, total)
    state = filled(torch.zeros(2, 5, 3))
    cache = Cache([{"op": state}], 2, total)
    u, dt, a, b, c, d = given
    got, at = [], 0
    with torch.no_grad():
        for n in pieces:
            u_, dt_, b_, c_ = (t[:, at : at + n] for t in (u, dt, b, c))
            got.append(selective_scan(u_, dt_, a, b_, c_, d, plain(2, n, cache), state))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        want, last = ref.selective_scan(*one(given, row))
        close(torch.cat(got, 1)[row], want)
        close(state.ssm[row], last)


@pytest.mark.parametrize("grad", [False, True])
def test_a_step_writes_the_state_in_place(grad):
    """So that a captured graph of steps goes on; and into a new tensor while a backward may want the old."""
    given, initial = inputs(2, 1, dim=70, size=16), made(8, 2, 70, 16)
    state = filled(initial)
    held = state.ssm
    with torch.set_grad_enabled(grad):
        y = selective_scan(*given, plain(2, 1), state)
    assert (state.ssm is held) != grad and torch.equal(held, initial) == grad
    for row in range(2):
        want, last = ref.selective_scan(*one(given, row), initial[row])
        close(y[row], want)
        close(state.ssm[row], last)


def test_channels_of_many_tiles_cut_out_of_wider_tensors():
    _, dt, a, _, _, d = inputs(2, 20, dim=131)
    wide = made(7, 2, 20, 150)
    given = (wide[..., 1:132], dt, a, wide[..., 133:136], wide[..., 136:139], d)
    y = selective_scan(*given, plain(2, 20))
    for row in range(2):
        close(y[row], ref.selective_scan(*one(given, row))[0])


@pytest.mark.parametrize("borders", [*BORDERS, [0, 37]], ids=str)
def test_gradients(borders):
    given = inputs(1, borders[-1])

    def sequential(*i):
        return torch.cat([ref.selective_scan(*one(i, 0, s, e))[0] for s, e in ref.documents(borders)])[None]

    got = gradients(lambda *i: selective_scan(*i, packed(borders)), given)
    for g, w in zip(got, gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_gradients_from_a_state_and_of_rows():
    """A step that is trained goes the long way."""
    for length in (1, 18):
        given, initial = inputs(2, length), made(8, 2, 5, 3)

        def ours(*i, length=length, initial=initial):
            return selective_scan(*i, plain(2, length), filled(initial))

        def sequential(*i, initial=initial):
            return torch.stack([ref.selective_scan(*one(i, n), initial[n])[0] for n in range(2)])

        for g, w in zip(gradients(ours, given), gradients(sequential, [i.double() for i in given]), strict=True):
            close(g, w)


def test_gradients_of_many_tiles_cut_out_of_wider_tensors():
    """Channels of two programs, and a gradient that is one number for all, as sum() gives."""
    channels = SPLIT + 3
    _, dt, a, _, _, d = inputs(1, 3, dim=channels, size=2)
    leaves = [t.requires_grad_() for t in (made(7, 1, 3, channels + 9), dt, a, d)]

    def cut(wide, dt, a, d):
        return wide[..., 1 : channels + 1], dt, a, wide[..., -4:-2], wide[..., -2:], d

    selective_scan(*cut(*leaves), plain(1, 3)).sum().backward()
    exact = [t.detach().double().requires_grad_() for t in leaves]
    ref.selective_scan(*one(cut(*exact), 0))[0].sum().backward()
    for g, w in zip(leaves, exact, strict=True):
        close(g.grad, w.grad)


def test_half_inputs_are_summed_in_fp32():
    given = [t.half() if n in (0, 3, 4) else t for n, t in enumerate(inputs(1, 20))]
    given = [t.requires_grad_() for t in given]
    y = selective_scan(*given, plain(1, 20))
    exact = [t.detach().double().requires_grad_() for t in given]
    want = ref.selective_scan(*one(exact, 0))[0]
    assert y.dtype == torch.float16
    # half a unit in the last of 11 bits
    assert ((y[0].double() - want).abs() <= want.abs() * 2**-11 + 1e-6).all()
    (y.float() * y.detach().float()).sum().backward()
    (want * y[0].detach().double()).sum().backward()
    for g, w in zip(given, exact, strict=True):
        assert g.grad.dtype == g.dtype
        close(g.grad, w.grad, 2**-10)


def test_fp64_is_refused():
    with pytest.raises(UsageError, match="fp32"):
        selective_scan(*[t.double() for t in inputs(1, 2)], plain(1, 2))


def test_binaries_fit_their_targets():
    check_fits("hybridc.runtime.kernels.selective_scan")
