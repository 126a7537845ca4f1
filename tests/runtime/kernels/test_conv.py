"""The causal convolution's kernels against sums of taps in float64."""

from itertools import pairwise

import pytest
import torch

from hybridc.runtime.cache import Cache, ConvState
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.conv import SPAN, CausalConv1d, causal_conv1d
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, close, gradients, made, packed, plain

BORDERS = [[0, 9], [0, 1, 2, 2, 5, 40], [0, 0, 37, 38, 38]]


def sequential(x, weight, bias, borders, silu, before=None):
    """x [T, C] in documents; `before` [documents, taps - 1, C] are inputs in front of them."""
    rows = []
    for n, (s, e) in enumerate(pairwise(borders)):
        front = x[:0] if before is None else before[n]
        y = ref.conv(torch.cat((front.to(x.dtype), x[s:e])), weight, bias)[len(front) :] if e > s else x[s:e].double()
        rows.append(y / (1 + torch.exp(-y)) if silu else y)
    return torch.cat(rows)


def weights(channels, taps, bias=True):
    return made(2, channels, taps), made(3, channels) if bias else None


def filled(before):
    state = ConvState(before.shape[0], conv=(before.shape[2], before.shape[1] + 1), device=CPU, dtype=torch.float32)
    state.conv = before.clone()
    return state


@pytest.mark.parametrize("borders", BORDERS, ids=str)
@pytest.mark.parametrize(
    ("taps", "bias", "silu"), [(1, True, False), (2, False, True), (4, True, True), (5, True, False)]
)
@pytest.mark.parametrize("start", [False, True], ids=["zeros", "state"])
def test_packed_documents(borders, taps, bias, silu, start):
    x, (weight, bias) = made(1, 1, borders[-1], 3), weights(3, taps, bias)
    before = made(4, len(borders) - 1, taps - 1, 3) if start else None
    y = causal_conv1d(x, weight, bias, packed(borders), filled(before) if start else None, silu=silu)
    close(y[0], sequential(x[0], weight, bias, borders, silu, before))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_of_many_tiles(dtype):
    """More channels than a tile has and more tokens, cut out of a wider tensor."""
    wide = made(1, 2, 70, 150).to(dtype)
    x, (weight, bias) = wide[..., 7:140], weights(133, 4)
    y = causal_conv1d(x, weight.to(dtype), bias.to(dtype), plain(2, 70), silu=True)
    assert y.dtype == dtype
    for row in range(2):
        want = sequential(x[row], weight.to(dtype), bias.to(dtype), [0, 70], True)
        # half a unit in the last of 11 bits
        assert dtype == torch.float32 or ((y[row].double() - want).abs() <= want.abs() * 2**-11 + 1e-6).all()
        close(y[row], want, 1e-5 if dtype == torch.float32 else 1e-3)


@pytest.mark.parametrize("pieces", PIECES, ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_a_cache_filled_in_pieces(pieces, grad):
    total = sum(pieces)
    conv = CausalConv1d(3, 4)
    state = ConvState(2, conv=(3, 4), device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 2, total)
    x, got, at = made(1, 2, total, 3), [], 0
    with torch.set_grad_enabled(grad):
        for n in pieces:
            got.append(conv(x[:, at : at + n], plain(2, n, cache), state, silu=True))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        close(torch.cat(got, 1)[row], sequential(x[row], conv.weight, conv.bias, [0, total], True))
        assert torch.equal(state.conv[row], x[row, -3:])


def test_a_step_writes_the_state_in_place():
    """So that a captured graph of steps goes on; and into a new tensor while a backward may want the old."""
    conv = CausalConv1d(300, 4)
    before, x = made(4, 2, 3, 300), made(1, 2, 1, 300)
    state = filled(before)
    held = state.conv
    with torch.no_grad():
        y = conv(x, plain(2, 1), state)
    assert state.conv is held and torch.equal(held, torch.cat((before[:, 1:], x), 1))
    for row in range(2):
        close(y[row], sequential(x[row], conv.weight, conv.bias, [0, 1], False, before[row : row + 1]))
    state = filled(before)
    held = state.conv
    frozen = causal_conv1d(x, conv.weight.detach(), None, plain(2, 1), state)
    assert not frozen.requires_grad
    assert torch.equal(held, before) and torch.equal(state.conv, torch.cat((before[:, 1:], x), 1))


def test_packed_calls_into_one_cache():
    """Documents shorter than the taps, and rows without any new token, keep their last inputs."""
    conv = CausalConv1d(3, 4)
    state = ConvState(3, conv=(3, 4), device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 3, 20)
    x = made(1, 3, 20, 3)
    at, got = [0, 0, 0], [[], [], []]
    with torch.no_grad():
        for lengths in ([1, 2, 0], [0, 1, 3], [5, 0, 1], [1, 1, 1]):
            offsets = [0, lengths[0], lengths[0] + lengths[1], sum(lengths)]
            row = torch.cat([x[r, at[r] : at[r] + lengths[r]] for r in range(3)])[None]
            y = conv(row, packed(offsets, cache), state)[0]
            cache.advance(lengths)
            for r in range(3):
                got[r].append(y[offsets[r] : offsets[r + 1]])
                at[r] += lengths[r]
    for r in range(3):
        close(torch.cat(got[r]), ref.conv(x[r, : at[r]], conv.weight, conv.bias))


@pytest.mark.parametrize("borders", [*BORDERS, [0, 3, 2 * SPAN + 21]], ids=str)
@pytest.mark.parametrize(("taps", "silu"), [(1, True), (4, False), (4, True)])
@pytest.mark.parametrize("start", [False, True], ids=["zeros", "state"])
def test_gradients(borders, taps, silu, start):
    before = made(4, len(borders) - 1, taps - 1, 3) if start else None

    def ours(x, weight, bias):
        return causal_conv1d(x, weight, bias, packed(borders), filled(before) if start else None, silu=silu)

    def theirs(x, weight, bias):
        return sequential(x[0], weight, bias, borders, silu, before)[None]

    given = [made(1, 1, borders[-1], 3), *weights(3, taps)]
    for g, w in zip(gradients(ours, given), gradients(theirs, [i.double() for i in given]), strict=True):
        close(g, w)


def test_gradients_of_rows_of_many_tiles():
    """A gradient that is one number for all, as sum() gives, and none for a bias that is not there."""
    wide, weight = made(1, 2, 20, 150).requires_grad_(), made(2, 133, 4).requires_grad_()
    causal_conv1d(wide[..., 7:140], weight, None, plain(2, 20), silu=True).sum().backward()
    wide64, weight64 = wide.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    for row in range(2):
        sequential(wide64[row, :, 7:140], weight64, None, [0, 20], True).sum().backward()
    close(wide.grad, wide64.grad)
    close(weight.grad, weight64.grad)


def test_a_step_that_is_trained_has_gradients():
    before = made(4, 2, 3, 3)
    weight, bias = (t.requires_grad_() for t in weights(3, 4))
    x = made(1, 2, 1, 3)
    causal_conv1d(x, weight, bias, plain(2, 1), filled(before)).sum().backward()
    close(weight.grad, torch.cat((before, x), 1).double().sum(0).t())
    close(bias.grad, torch.full((3,), 2.0, dtype=torch.float64))


def test_a_backward_fails_if_a_step_has_replaced_what_it_needs():
    conv, state = CausalConv1d(3, 4), filled(made(4, 1, 3, 3))
    held = state.conv
    y = causal_conv1d(made(1, 1, 2, 3), conv.weight, None, plain(1, 2), state)
    state.conv = held
    with torch.no_grad():
        conv(made(5, 1, 1, 3), plain(1, 1), state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_fp64_is_refused():
    with pytest.raises(UsageError, match="fp32"):
        causal_conv1d(made(1, 1, 2, 3).double(), *weights(3, 4), plain(1, 2))


def test_binaries_fit_their_targets():
    check_fits("hybridc.runtime.kernels.conv")
