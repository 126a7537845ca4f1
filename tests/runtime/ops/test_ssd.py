"""Mamba-2's scan against the recurrence in float64, token after token."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from hybridc.runtime.ops.ssd import ssd_reference
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain


def inputs(rows, length, heads=4, width=3, groups=2, size=5):
    dt = torch.rand(rows, length, heads, generator=torch.Generator().manual_seed(2)) * 1.5
    a = -(0.1 + 15 * torch.rand(heads, generator=torch.Generator().manual_seed(3)))
    x, b, c = made(1, rows, length, heads, width), *(made(n, rows, length, groups, size) for n in (4, 5))
    return x, dt, a, b, c, made(6, heads)


def one(given, row, s=None, e=None):
    """A document's inputs out of a batch's."""
    x, dt, a, b, c, d = given
    return x[row, s:e], dt[row, s:e], a, b[row, s:e], c[row, s:e], d


@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 64, 1000])
@pytest.mark.parametrize("length", [1, 2, 15, 33, 130])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_any_length_and_chunk(length, chunk, groups):
    given = inputs(2, length, groups=groups)
    y, last = ops.ssd(*given, chunk=chunk, return_state=True)
    for row in range(2):
        want, state = ref.ssd(*one(given, row))
        close(y[row], want)
        close(last[row], state)


@given(borders, st.sampled_from([1, 4, 8, 64]), st.booleans())
@settings(max_examples=40)
def test_packed_documents(borders, chunk, start):
    given = inputs(1, borders[-1])
    initial = made(8, len(borders) - 1, 4, 3, 5) if start else None
    y, last = ops.ssd(*given, packed(borders), chunk=chunk, initial_state=initial, return_state=True)
    for n, (s, e) in enumerate(pairwise(borders)):
        if e > s:
            want, state = ref.ssd(*one(given, 0, s, e), None if initial is None else initial[n])
            close(y[0, s:e], want)
            close(last[n], state)
        else:
            assert torch.equal(last[n], torch.zeros(4, 3, 5) if initial is None else initial[n])


@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_cache_filled_in_pieces(pieces):
    total = sum(pieces)
    given = inputs(2, total)
    state = ops.MambaState(2, conv=(1, 2), ssm=(4, 3, 5), device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 2, total)
    x, dt, a, b, c, d = given
    got, at = [], 0
    with torch.no_grad():
        for n in pieces:
            x_, dt_, b_, c_ = (t[:, at : at + n] for t in (x, dt, b, c))
            got.append(ops.ssd(x_, dt_, a, b_, c_, d, plain(2, n, cache), state, chunk=8))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        want, last = ref.ssd(*one(given, row))
        close(torch.cat(got, 1)[row], want)
        close(state.ssm[row], last)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("chunk", [3, 8, 64])
def test_gradients(chunk, groups):
    border = [0, 1, 9, 22]
    given = inputs(1, 22, groups=groups)
    got = gradients(lambda *i: ops.ssd(*i, packed(border), None, chunk=chunk), given)

    def sequential(*i):
        return torch.cat([ref.ssd(*one(i, 0, s, e))[0] for s, e in ref.documents(border)])[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


@pytest.mark.parametrize("length", [1, 13])
def test_gradients_from_and_to_states(length):
    x, dt, a, b, c, _ = inputs(1, length)
    initial = made(8, 1, 4, 3, 5)

    def ours(x, dt, a, b, c, h):
        y, last = ops.ssd(x, dt, a, b, c, chunk=4, initial_state=h, return_state=True)
        return torch.cat((y.flatten(), last.flatten()))

    def sequential(x, dt, a, b, c, h):
        y, last = ref.ssd(x[0], dt[0], a, b[0], c[0], torch.zeros(4), h[0])
        return torch.cat((y.flatten(), last.flatten()))

    given = [x, dt, a, b, c, initial]
    for g, w in zip(gradients(ours, given), gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_derivatives_by_differences():
    """fp64 all through, against central differences."""
    given = [i.double().requires_grad_() for i in inputs(1, 9, heads=2, width=2, groups=1, size=3)]
    assert torch.autograd.gradcheck(lambda *i: ops.ssd(*i, packed([0, 4, 9]), None, chunk=3), given)


def test_a_decay_far_beyond_float32_leaves_the_near_tokens_exact():
    """Running sums reach thousands; what lies between two neighbours must not be lost in them."""
    x, dt, a, b, c, d = inputs(1, 62)
    dt = torch.where(torch.arange(62)[None, :, None] % 9 == 0, 60.0, 0.003).expand_as(dt)
    given = (x, dt, a, b, c, d)
    y, last = ops.ssd(*given, plain(1, 62), None, chunk=64, return_state=True)
    want, state = ref.ssd(*one(given, 0))
    close(y[0], want, 2e-6)
    assert ((last[0].double() - state).abs() <= 3e-6 * state.abs().max()).all()


def test_the_sequential_form():
    given = inputs(2, 9)
    initial = made(8, 2, 4, 3, 5)
    y, last = ssd_reference(*given, initial)
    for row in range(2):
        want, state = ref.ssd(*one(given, row), initial[row])
        close(y[row], want)
        close(last[row], state)


def test_half_inputs_are_computed_in_fp32():
    given = [t.to(torch.bfloat16) for t in inputs(1, 40)]
    y = ops.ssd(*given, chunk=8)
    assert y.dtype == torch.bfloat16
    # half a unit in the last of 8 bits
    want = ref.ssd(*one(given, 0))[0]
    assert ((y[0].double() - want).abs() <= want.abs() * 2**-8 + 1e-5).all()
