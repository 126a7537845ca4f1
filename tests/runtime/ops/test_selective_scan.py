"""Mamba's scan against the recurrence in float64, token after token."""

import pytest
import torch
from hypothesis import given, settings

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain


def inputs(rows, length, dim=5, size=4):
    dt = torch.rand(rows, length, dim, generator=torch.Generator().manual_seed(2))
    a = -(0.1 + 15 * torch.rand(dim, size, generator=torch.Generator().manual_seed(3)))
    return made(1, rows, length, dim), dt, a, made(4, rows, length, size), made(5, rows, length, size), made(6, dim)


def one(given, row, s=None, e=None):
    """A document's inputs out of a batch's."""
    u, dt, a, b, c, d = given
    return u[row, s:e], dt[row, s:e], a, b[row, s:e], c[row, s:e], d


@pytest.mark.parametrize("length", [1, 2, 16, 17, 255, 300])
def test_any_length(length):
    given = inputs(2, length)
    y = ops.selective_scan(*given, plain(2, length), None)
    for row in range(2):
        close(y[row], ref.selective_scan(*one(given, row))[0])


@given(borders)
@settings(max_examples=40)
def test_packed_documents(borders):
    given = inputs(1, borders[-1])
    y = ops.selective_scan(*given, packed(borders), None)
    for s, e in ref.documents(borders):
        close(y[0, s:e], ref.selective_scan(*one(given, 0, s, e))[0])


def test_many_documents_over_many_blocks():
    offsets = [0, 1, 2, 300, 301, 700, *range(701, 740)]
    given = inputs(1, offsets[-1], dim=2, size=2)
    y = ops.selective_scan(*given, packed(offsets), None)
    for s, e in ref.documents(offsets):
        close(y[0, s:e], ref.selective_scan(*one(given, 0, s, e))[0])


@pytest.mark.parametrize("pieces", [*PIECES, [300, 1, 299]], ids=str)
def test_a_cache_filled_in_pieces(pieces):
    total = sum(pieces)
    given = inputs(2, total)
    state = ops.MambaState(2, conv=(1, 2), ssm=(5, 4), device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 2, total)
    u, dt, a, b, c, d = given
    got, at = [], 0
    with torch.no_grad():
        for n in pieces:
            u_, dt_, b_, c_ = (t[:, at : at + n] for t in (u, dt, b, c))
            got.append(ops.selective_scan(u_, dt_, a, b_, c_, d, plain(2, n, cache), state))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        want, last = ref.selective_scan(*one(given, row))
        close(torch.cat(got, 1)[row], want)
        close(state.ssm[row], last)


def test_a_packed_prefill_keeps_each_documents_state():
    offsets = [0, 20, 20, 21, 60]
    given = inputs(1, 60)
    state = ops.MambaState(4, conv=(1, 2), ssm=(5, 4), device=CPU, dtype=torch.float32)
    initial = made(8, 4, 5, 4)
    state.ssm.copy_(initial)
    with torch.no_grad():
        y = ops.selective_scan(*given, packed(offsets, Cache([{"op": state}], 4, 60)), state)
    assert torch.equal(state.ssm[1], initial[1])
    for n in (0, 2, 3):
        s, e = offsets[n], offsets[n + 1]
        want, last = ref.selective_scan(*one(given, 0, s, e), initial[n])
        close(y[0, s:e], want)
        close(state.ssm[n], last)


@pytest.mark.parametrize("border", [[0, 1, 9, 50], [0, 300], [0, 2, 270, 271]], ids=str)
def test_gradients(border):
    given = inputs(1, border[-1], dim=3, size=2)
    got = gradients(lambda *i: ops.selective_scan(*i, packed(border), None), given)

    def sequential(*i):
        return torch.cat([ref.selective_scan(*one(i, 0, s, e))[0] for s, e in ref.documents(border)])[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_derivatives_by_differences():
    """fp64 all through, against central differences, over two chunks."""
    given = [i.double().requires_grad_() for i in inputs(1, 20, dim=2, size=2)]
    assert torch.autograd.gradcheck(lambda *i: ops.selective_scan(*i, plain(1, 20), None), given)


def test_the_graph_holds_no_states_of_all_tokens():
    """What the forward keeps for the backward: inputs and outputs, not [B, S, D, N]."""
    given = [i.requires_grad_() for i in inputs(1, 512, dim=8, size=16)]
    kept = {}

    def keep(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes() // 4
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        y = ops.selective_scan(*given, plain(1, 512), None)
    assert y.requires_grad and sum(kept.values()) < 512 * 8 * 16
