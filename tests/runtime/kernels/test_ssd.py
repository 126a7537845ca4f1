"""Mamba-2's kernels against the recurrence in float64, token after token."""

from itertools import pairwise

import pytest
import torch

from hybridc.runtime.cache import Cache, MambaState
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.ssd import ssd
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, close, gradients, made, packed, plain


def inputs(rows, length, heads=4, width=3, groups=2, size=5):
    dt = torch.rand(rows, length, heads, generator=torch.Generator().manual_seed(2)) * 1.5
    a = -(0.1 + 3 * torch.rand(heads, generator=torch.Generator().manual_seed(3)))
    x, b, c = made(1, rows, length, heads, width), *(made(n, rows, length, groups, size) for n in (4, 5))
    return x, dt, a, b, c, made(6, heads)


def one(given, row, s=None, e=None):
    """A document's inputs out of a batch's."""
    x, dt, a, b, c, d = given
    return x[row, s:e], dt[row, s:e], a, b[row, s:e], c[row, s:e], d


def filled(initial):
    state = MambaState(initial.shape[0], conv=(1, 2), ssm=initial.shape[1:], device=CPU, dtype=torch.float32)
    state.ssm = initial.clone()
    return state


@pytest.mark.parametrize(("length", "chunk"), [(1, 64), (15, 1000), (40, 16), (33, 1), (70, 64)])
@pytest.mark.parametrize("groups", [1, 4])
def test_any_length_and_chunk(length, chunk, groups):
    given = inputs(2, length, groups=groups)
    y, last = ssd(*given, chunk=chunk, return_state=True)
    for row in range(2):
        want, state = ref.ssd(*one(given, row))
        close(y[row], want)
        close(last[row], state)


BORDERS = [[0, 1, 9, 9, 42], [0, 0, 37, 38, 38], [0, 70, 79]]


@pytest.mark.parametrize("borders", BORDERS, ids=str)
@pytest.mark.parametrize("chunk", [16, 256])
@pytest.mark.parametrize("start", [False, True], ids=["zeros", "states"])
def test_packed_documents(borders, chunk, start):
    given = inputs(1, borders[-1])
    initial = made(8, len(borders) - 1, 4, 3, 5) if start else None
    y, last = ssd(*given, packed(borders), chunk=chunk, initial_state=initial, return_state=True)
    for n, (s, e) in enumerate(pairwise(borders)):
        if e > s:
            want, state = ref.ssd(*one(given, 0, s, e), None if initial is None else initial[n])
            close(y[0, s:e], want)
            close(last[n], state)
        else:
            assert torch.equal(last[n], torch.zeros(4, 3, 5) if initial is None else initial[n])


def test_heads_and_states_of_many_tiles_cut_out_of_wider_tensors():
    _, dt, a, _, _, d = inputs(2, 40, heads=2)
    wide = made(7, 2, 40, 2 * 131 + 260 + 5)
    u, b, c = wide[..., 1:261].unflatten(2, (2, 130)), wide[..., None, 262:393], wide[..., None, 393:524]
    given = (u, dt.transpose(0, 1).contiguous().transpose(0, 1), a, b, c, d)
    y, last = ssd(*given, chunk=32, return_state=True)
    for row in range(2):
        want, state = ref.ssd(*one(given, row))
        close(y[row], want)
        close(last[row], state)


@pytest.mark.parametrize("pieces", PIECES[1:4], ids=str)
def test_a_cache_filled_in_pieces(pieces):
    total = sum(pieces)
    given = inputs(2, total)
    state = MambaState(2, conv=(1, 2), ssm=(4, 3, 5), device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 2, total)
    x, dt, a, b, c, d = given
    got, at = [], 0
    with torch.no_grad():
        for n in pieces:
            x_, dt_, b_, c_ = (t[:, at : at + n] for t in (x, dt, b, c))
            got.append(ssd(x_, dt_, a, b_, c_, d, plain(2, n, cache), state, chunk=16))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        want, last = ref.ssd(*one(given, row))
        close(torch.cat(got, 1)[row], want)
        close(state.ssm[row], last)


@pytest.mark.parametrize("skip", [True, False])
def test_a_step_writes_the_state_in_place(skip):
    """So that a captured graph of steps goes on; and into a new tensor where the caller wants it, or autograd might."""
    given, initial = inputs(2, 1, width=70, size=64), made(8, 2, 4, 70, 64)
    x, dt, a, b, c, d = given
    wants = [ref.ssd(*one(given, row)[:5], d if skip else torch.zeros(4), initial[row]) for row in range(2)]
    for grad, returned in ((False, False), (False, True), (True, False)):
        state = filled(initial)
        held = state.ssm
        with torch.set_grad_enabled(grad):
            out = ssd(x, dt, a, b, c, d if skip else None, plain(2, 1), state, return_state=returned)
        y = out[0] if returned else out
        assert (state.ssm is held) or grad
        assert torch.equal(held, initial) == grad
        assert not returned or (out[1].data_ptr() != held.data_ptr() and torch.equal(out[1], held))
        for row in range(2):
            close(y[row], wants[row][0])
            close(state.ssm[row], wants[row][1])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("borders", BORDERS, ids=str)
def test_gradients_of_packed_documents(borders, groups):
    """To all inputs and the first states, from outputs and last states."""
    documents = len(borders) - 1
    given = [*inputs(1, borders[-1], heads=2, groups=groups), made(8, documents, 2, 3, 5)]

    def ours(x, dt, a, b, c, d, h):
        y, last = ssd(x, dt, a, b, c, d, packed(borders), chunk=64, initial_state=h, return_state=True)
        return torch.cat((y.flatten(), last.flatten()))

    def sequential(x, dt, a, b, c, d, h):
        ys, lasts = [], []
        for n, (s, e) in enumerate(pairwise(borders)):
            y, last = ref.ssd(*one((x, dt, a, b, c, d), 0, s, e), h[n]) if e > s else (x[0, :0], h[n])
            ys.append(y)
            lasts.append(last)
        return torch.cat((torch.cat(ys).flatten(), torch.stack(lasts).flatten()))

    for g, w in zip(gradients(ours, given), gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


@pytest.mark.parametrize(("length", "chunk"), [(1, 16), (13, 16), (40, 16), (70, 64)])
@pytest.mark.parametrize("which", [0, 1], ids=["outputs", "states"])
def test_gradients_of_rows(length, chunk, which):
    """No first states and no skip; of the outputs alone and of the last states alone, which do not see c."""
    x, dt, a, b, c, _ = inputs(2, length, heads=2, groups=1)
    given = [x, dt, a, b] if which else [x, dt, a, b, c]

    def ours(x, dt, a, b, c=c):
        return ssd(x, dt, a, b, c, chunk=chunk, return_state=True)[which]

    def sequential(x, dt, a, b, c=c):
        return torch.stack([ref.ssd(x[n], dt[n], a, b[n], c[n], torch.zeros(2))[which] for n in range(2)])

    for g, w in zip(gradients(ours, given), gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_gradients_of_many_tiles_cut_out_of_wider_tensors():
    wide, (_, dt, a, _, _, d) = made(7, 1, 40, 2 * 131 + 260 + 5), inputs(1, 40, heads=2)

    def cut(wide):
        return wide[..., 1:261].unflatten(2, (2, 130)), wide[..., None, 262:393], wide[..., None, 393:524]

    def ours(wide, dt, a, d):
        x, b, c = cut(wide)
        return ssd(x, dt, a, b, c, d, chunk=16).transpose(1, 3)

    def sequential(wide, dt, a, d):
        x, b, c = cut(wide)
        return ref.ssd(x[0], dt[0], a, b[0], c[0], d)[0][None].transpose(1, 3)

    given = [wide, dt, a, d]
    for g, w in zip(gradients(ours, given), gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_a_decay_far_beyond_float32_leaves_the_near_tokens_exact():
    """Running sums reach thousands; what lies between two neighbours must not be lost in them."""
    x, dt, a, b, c, d = inputs(1, 62)
    dt = torch.where(torch.arange(62)[None, :, None] % 9 == 0, 300.0, 0.003).expand_as(dt)
    given = (x, dt, a, b, c, d)
    y, last = ssd(*given, plain(1, 62), None, chunk=64, return_state=True)
    want, state = ref.ssd(*one(given, 0))
    close(y[0], want, 2e-6)
    assert ((last[0].double() - state).abs() <= 3e-6 * state.abs().max()).all()


def test_half_inputs_are_summed_in_fp32():
    given = [t.half() if n not in (1, 2) else t for n, t in enumerate(inputs(1, 40))]
    y, last = ssd(*given, chunk=16, return_state=True)
    assert (y.dtype, last.dtype) == (torch.float16, torch.float32)
    want, state = ref.ssd(*one(given, 0))
    # factors of 11 bits, some of them rounded once more
    close(y[0], want, 2e-3)
    close(last[0], state, 2e-3)
    given = [t.requires_grad_() for t in given]
    ssd(*given, chunk=16).float().square().sum().backward()
    exact = [t.detach().double().requires_grad_() for t in given]
    ref.ssd(*one(exact, 0))[0].square().sum().backward()
    for g, w in zip(given, exact, strict=True):
        assert g.grad.dtype == g.dtype
        close(g.grad, w.grad, 4e-3)


def test_inputs_of_two_types_are_multiplied_in_fp32():
    x, dt, a, b, c, d = inputs(1, 20)
    given = [x.half(), dt, a, b, c.half(), d]
    want = ref.ssd(*one(given, 0))[0]
    given = [t.requires_grad_() for t in given]
    y = ssd(*given, chunk=16)
    assert y.dtype == torch.float16
    close(y[0], want, 2**-11)
    y.sum().backward()
    assert [t.grad.dtype for t in given] == [t.dtype for t in given]


def test_a_backward_fails_if_a_step_has_replaced_what_it_needs():
    x, dt, a, b, c, d = inputs(1, 2)
    state = filled(made(8, 1, 4, 3, 5))
    held = state.ssm.requires_grad_(False)
    rate = a.clone().requires_grad_()
    loss = (held * rate[:, None, None]).sum()
    with torch.no_grad():
        ssd(x[:, :1], dt[:, :1], a, b[:, :1], c[:, :1], d, plain(1, 1), state)
    assert state.ssm is held
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_fp64_is_refused():
    with pytest.raises(UsageError, match="fp32"):
        ssd(*[t.double() for t in inputs(1, 2)])


def test_binaries_fit_their_targets():
    check_fits("hybridc.runtime.kernels.ssd")
