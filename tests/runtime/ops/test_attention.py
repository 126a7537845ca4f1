"""Attention against softmaxes in float64, token after token."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain

HEADS = [(4, 4), (4, 2), (4, 1)]


def inputs(rows, length, heads=(4, 2), width=6):
    return made(1, rows, length, heads[0], width), *(made(n, rows, length, heads[1], width) for n in (2, 3))


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("window", [None, 1, 5, 150])
@pytest.mark.parametrize("length", [1, 2, 129, 300])
def test_rows(length, window, heads):
    qkv = inputs(2, length, heads)
    y = ops.attention(*qkv, plain(2, length), None, scale=0.5, window=window)
    for row in range(2):
        close(y[row], ref.attention(*(t[row] for t in qkv), 0.5, window))


@given(borders, st.sampled_from([None, 1, 3, 8, 500]), st.sampled_from(HEADS))
@settings(max_examples=40)
def test_packed_documents(borders, window, heads):
    qkv = inputs(1, borders[-1], heads)
    y = ops.attention(*qkv, packed(borders), None, scale=0.3, window=window)
    for s, e in ref.documents(borders):
        close(y[0, s:e], ref.attention(*(t[0, s:e] for t in qkv), 0.3, window))


@pytest.mark.parametrize("window", [None, 6, 140])
@pytest.mark.parametrize("pieces", [*PIECES, [150, 200, 1]], ids=str)
def test_a_cache_filled_in_pieces(pieces, window):
    total = sum(pieces)
    state = ops.KVState(2, total, heads=2, head_dim=6, device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 2, total)
    qkv, got, at = inputs(2, total), [], 0
    with torch.no_grad():
        for n in pieces:
            part = [t[:, at : at + n] for t in qkv]
            got.append(ops.attention(*part, plain(2, n, cache), state, scale=0.4, window=window))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        close(torch.cat(got, 1)[row], ref.attention(*(t[row] for t in qkv), 0.4, window))


@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("grad", [False, True])
def test_steps_behind_pasts_of_different_length(step, window, grad):
    past = [9, 0, 4]
    state = ops.KVState(3, 12, heads=2, head_dim=6, device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 3, 12)
    qkv = inputs(3, 12)
    with torch.no_grad():
        offsets = [0, 9, 9, 13]
        first = [torch.cat([t[r, : past[r]] for r in range(3)])[None] for t in qkv]
        ops.attention(*first, packed(offsets, cache), state, scale=0.4, window=window)
        cache.advance(past)
    new = [torch.stack([t[r, past[r] : past[r] + step] for r in range(3)]) for t in qkv]
    with torch.set_grad_enabled(grad):
        y = ops.attention(*new, plain(3, step, cache), state, scale=0.4, window=window)
    for r in range(3):
        want = ref.attention(*(t[r, : past[r] + step] for t in qkv), 0.4, window)
        close(y[r], want[past[r] :])


@pytest.mark.parametrize("window", [None, 3, 130])
@pytest.mark.parametrize("border", [[0, 12], [0, 1, 9, 22], [0, 5, 300]], ids=str)
def test_gradients(border, window):
    qkv = inputs(1, border[-1], (2, 1), 4)
    got = gradients(lambda *i: ops.attention(*i, packed(border), None, scale=0.6, window=window), qkv)

    def sequential(*i):
        parts = [ref.attention(*(t[0, s:e] for t in i), 0.6, window) for s, e in ref.documents(border)]
        return torch.cat(parts)[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in qkv]), strict=True):
        close(g, w)


def test_a_window_costs_no_square_of_the_length():
    """The largest tensor that a window of 64 makes over 4,096 tokens; a mask of all against all has 16.8 million."""
    largest = 0

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(t, torch.Tensor):
                    largest = max(largest, t.numel())
            return out

    qkv = inputs(1, 4096, (2, 1), 8)
    for context in (plain(1, 4096), packed([0, 4096]), packed([0, 1000, 4096])):
        with Largest(), torch.no_grad():
            ops.attention(*qkv, context, None, scale=1.0, window=64)
            ops.attention(*qkv, context, None, scale=1.0)
    assert largest < 4096 * 64
