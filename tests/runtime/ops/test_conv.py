"""The causal convolution against sums of taps in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain


@given(borders, st.integers(1, 5), st.booleans())
@settings(max_examples=40)
def test_packed_documents(borders, taps, bias):
    conv = ops.CausalConv1d(3, taps, bias=bias)
    x = made(1, 1, borders[-1], 3)
    y = conv(x, packed(borders))
    for s, e in ref.documents(borders):
        close(y[0, s:e], ref.conv(x[0, s:e], conv.weight, conv.bias))


@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_cache_filled_in_pieces(pieces):
    total = sum(pieces)
    conv = ops.CausalConv1d(3, 4)
    state = ops.MambaState(2, conv=(3, 4), ssm=(1,), device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 2, total)
    x, got, at = made(1, 2, total, 3), [], 0
    with torch.no_grad():
        for n in pieces:
            got.append(conv(x[:, at : at + n], plain(2, n, cache), state))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        close(torch.cat(got, 1)[row], ref.conv(x[row], conv.weight, conv.bias))


def test_packed_calls_into_one_cache():
    """Documents shorter than the taps, and rows without any new token, keep their last inputs."""
    conv = ops.CausalConv1d(3, 4)
    state = ops.MambaState(3, conv=(3, 4), ssm=(1,), device=CPU, dtype=torch.float32)
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


@pytest.mark.parametrize("border", [[0, 9], [0, 1, 3, 12]], ids=str)
def test_gradients(border):
    conv = ops.CausalConv1d(3, 4)
    names = ("weight", "bias")

    def ours(x, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(conv, given, (x, packed(border)))

    def sequential(x, weight, bias):
        return torch.cat([ref.conv(x[0, s:e], weight, bias) for s, e in ref.documents(border)])[None]

    given = [made(1, 1, border[-1], 3), conv.weight.detach(), made(2, 3)]
    for g, w in zip(gradients(ours, given), gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_half_inputs_are_summed_in_fp32():
    conv = ops.CausalConv1d(64, 4).to(torch.bfloat16)
    x = made(1, 1, 30, 64).to(torch.bfloat16)
    y, want = conv(x, plain(1, 30)), ref.conv(x[0], conv.weight, conv.bias)
    assert y.dtype == torch.bfloat16
    assert ((y[0].double() - want).abs() <= want.abs() * 2**-8 + 1e-5).all()
