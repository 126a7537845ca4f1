"""The delta rule's kernels against the recurrence in float64, token after token."""

import inspect
from itertools import pairwise

import pytest
import torch

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.delta_rule import Spans, delta_rule_chunks, gated_delta_rule
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, close, gradients, made, packed, plain

KINDS = {
    "a decay a head": dict(heads=2, key_heads=2, channels=False),
    "shared keys": dict(heads=2, key_heads=1, channels=False),
    "a decay a channel": dict(heads=2, key_heads=2, channels=True),
    "shared keys, a decay a channel": dict(heads=2, key_heads=1, channels=True),
}
kinds = pytest.mark.parametrize("kind", KINDS)
scalar_or_channels = pytest.mark.parametrize("kind", ["shared keys", "shared keys, a decay a channel"])
KEY, VALUE = 3, 5
TOLERANCE = 2e-6


def inputs(rows, length, kind, key=KEY, value=VALUE):
    """q, k, v, g and beta; β goes up to 2, where a state turns over."""
    heads, key_heads, channels = KINDS[kind].values()
    q, k, v = (
        made(1, rows, length, key_heads, key),
        made(2, rows, length, key_heads, key),
        made(3, rows, length, heads, value),
    )
    generator = torch.Generator().manual_seed(4)
    g = -3 * torch.rand(rows, length, heads, *([key] if channels else []), generator=generator).square()
    return q, k, v, g, 2 * torch.rand(rows, length, heads, generator=generator)


def state_of(initial):
    rows, *shape = initial.shape
    state = ops.MambaState(rows, conv=(1, 2), ssm=tuple(shape), device=CPU, dtype=torch.float32)
    state.ssm = initial.clone()
    return state


def sequential(q, k, v, g, beta, borders, initial):
    """Of tokens [T] in documents: y and the last states."""
    found = [
        ref.delta_rule(*(t[s:e] for t in (q, k, v, g, beta)), initial[n]) for n, (s, e) in enumerate(pairwise(borders))
    ]
    return torch.cat([y for y, _ in found]), torch.stack([last for _, last in found])


def test_the_signature_is_that_of_the_op():
    assert inspect.signature(gated_delta_rule) == inspect.signature(ops.gated_delta_rule)


@kinds
@pytest.mark.parametrize("borders", [[0, 1, 2, 2, 40], [0, 0, 66, 80]], ids=str)
def test_packed_documents(borders, kind):
    given, initial = inputs(1, borders[-1], kind), made(8, len(borders) - 1, 2, KEY, VALUE)
    state = state_of(initial)
    with torch.no_grad():
        y = gated_delta_rule(*given, packed(borders), state)
        fresh = gated_delta_rule(*given, packed(borders))
    want, last = sequential(*(t[0] for t in given), borders, initial)
    close(y[0], want, TOLERANCE)
    close(state.ssm, last, TOLERANCE)
    close(fresh[0], sequential(*(t[0] for t in given), borders, torch.zeros_like(initial))[0], TOLERANCE)


@scalar_or_channels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_cut_out_of_wider_tensors(dtype, kind):
    """As layers have them: q, k and v are parts of one tensor, heads of 35 and 70 channels take several tiles."""
    heads, key_heads, _ = KINDS[kind].values()
    wide = made(1, 2, 19, 2 * key_heads * 35 + heads * 70 + 3).to(dtype)
    q, k, v, _ = wide.split((key_heads * 35, key_heads * 35, heads * 70, 3), dim=-1)
    q, k, v = q.unflatten(-1, (key_heads, 35)), k.unflatten(-1, (key_heads, 35)), v.unflatten(-1, (heads, 70))
    _, _, _, g, beta = inputs(2, 19, kind, 35)
    given = (q, k, v, g.transpose(0, 1).contiguous().transpose(0, 1), beta.double().to(dtype))
    y = gated_delta_rule(*given, plain(2, 19))
    assert y.dtype == dtype
    for row in range(2):
        close(y[row], ref.delta_rule(*(t[row] for t in given))[0], TOLERANCE if dtype == torch.float32 else 4e-3)


@scalar_or_channels
@pytest.mark.parametrize(
    ("borders", "size", "key", "value"),
    [([0, 1, 21, 21, 38], 16, 3, 5), ([0, 45], 32, 35, 36), ([0, 70], 64, 3, 5)],
    ids=str,
)
def test_gradients(borders, size, key, value, kind):
    """Of y and of the last states, to all inputs and to the initial states."""
    given = [t[0] for t in inputs(1, borders[-1], kind, key, value)]
    given.append(made(8, len(borders) - 1, 2, key, value))
    spans = Spans.make(borders, size, CPU)

    def both(y, last):
        return torch.cat((y.flatten(), last.flatten()))

    got = gradients(lambda *i: both(*delta_rule_chunks(*i[:5], spans, i[5])), given)
    want = gradients(lambda *i: both(*sequential(*i[:5], borders, i[5])), [i.double() for i in given])
    for ours, theirs in zip(got, want, strict=True):
        close(ours, theirs, TOLERANCE)


@scalar_or_channels
@pytest.mark.parametrize("of", [0, 1], ids=["y", "last states"])
def test_gradients_of_one_of_the_results(of, kind):
    given, borders = [t[0] for t in inputs(1, 7, kind)], [0, 5, 7]
    got = gradients(lambda *i: delta_rule_chunks(*i, Spans.make(borders, 16, CPU))[of], given)
    zeros = torch.zeros(2, 2, KEY, VALUE)
    unused = of == 1  # queries have no say in the states
    for n, (ours, theirs) in enumerate(
        zip(got, gradients(lambda *i: sequential(*i, borders, zeros)[of], [i.double() for i in given]), strict=True)
    ):
        close(ours, torch.zeros_like(given[0]) if unused and n == 0 else theirs, TOLERANCE)


@scalar_or_channels
def test_half_precision_gradients(kind):
    given = [t[0] for t in inputs(1, 40, kind, 8, 8)]
    given = [*(t.half() for t in given[:3]), *given[3:]]
    got = gradients(lambda *i: delta_rule_chunks(*i, Spans.make([0, 40], 32, CPU))[0], given)
    zeros = torch.zeros(1, 2, 8, 8)
    want = gradients(lambda *i: sequential(*i, [0, 40], zeros)[0], [i.double() for i in given])
    for given_one, ours, theirs in zip(given, got, want, strict=True):
        assert ours.dtype == given_one.dtype
        close(ours, theirs, 1e-2)


@scalar_or_channels
def test_gradients_by_way_of_the_op(kind):
    """Behind a state that a cache holds, which is a constant and is replaced."""
    given, borders = inputs(1, 20, kind), [0, 3, 20]
    initial = made(8, 2, 2, KEY, VALUE)
    got = gradients(lambda *i: gated_delta_rule(*i, packed(borders), state_of(initial)), given)
    want = gradients(lambda *i: sequential(*(t[0] for t in i), borders, initial)[0][None], [i.double() for i in given])
    for ours, theirs in zip(got, want, strict=True):
        close(ours, theirs, TOLERANCE)


@scalar_or_channels
@pytest.mark.parametrize("pieces", [[1] * 4, [18, 1, 1, 3]], ids=str)
def test_a_cache_filled_in_pieces(pieces, kind):
    total, got, at = sum(pieces), [], 0
    given, state = inputs(2, total, kind), state_of(torch.zeros(2, 2, KEY, VALUE))
    cache = Cache([{"op": state}], 2, total)
    with torch.no_grad():
        for n in pieces:
            got.append(gated_delta_rule(*(t[:, at : at + n] for t in given), plain(2, n, cache), state))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        want, last = ref.delta_rule(*(t[row] for t in given))
        close(torch.cat(got, 1)[row], want, TOLERANCE)
        close(state.ssm[row], last, TOLERANCE)


def test_a_step_writes_the_state_where_it_is():
    given, state = inputs(2, 1, "shared keys", 20, 40), state_of(made(8, 2, 2, 20, 40))
    store, version, initial = state.ssm, state.ssm._version, state.ssm.clone()
    with torch.no_grad():
        y = gated_delta_rule(*given, plain(2, 1), state)
    assert state.ssm is store and store._version > version
    for row in range(2):
        want, last = ref.delta_rule(*(t[row] for t in given), initial[row])
        close(y[row], want, TOLERANCE)
        close(store[row], last, TOLERANCE)
    state.ssm = initial.transpose(2, 3).contiguous().transpose(2, 3)  # not one that a kernel can write
    with torch.no_grad():
        close(gated_delta_rule(*given, plain(2, 1), state), y.double(), TOLERANCE)
    close(state.ssm, store.double(), TOLERANCE)


def test_a_step_with_gradients_leaves_the_old_state_alone():
    given, initial = inputs(2, 1, "shared keys"), made(8, 2, 2, KEY, VALUE)
    state = state_of(initial)
    store = state.ssm
    y = gated_delta_rule(*(t.requires_grad_() for t in given), plain(2, 1), state)
    assert torch.equal(store, initial) and not torch.equal(state.ssm, initial)
    close(y[0].detach(), ref.delta_rule(*(t[0].detach() for t in given), initial[0])[0], TOLERANCE)


@scalar_or_channels
def test_a_decay_far_beyond_float32_leaves_the_near_tokens_exact(kind):
    """Running sums reach thousands; what lies between two neighbours must not be lost in them."""
    q, k, v, g, beta = inputs(1, 62, kind)
    strong = (torch.arange(62) % 5 == 0).view(1, 62, *[1] * (g.dim() - 2))
    given = (q, k, v, torch.where(strong, -900.0, g / 100), beta)
    close(gated_delta_rule(*given, plain(1, 62))[0], ref.delta_rule(*(t[0] for t in given))[0], TOLERANCE)


@scalar_or_channels
def test_one_key_over_and_over_without_decay(kind):
    """The powers of the chunk's system are beyond any float, its inverse is small: each value replaces the last."""
    q, _, v, g, _ = inputs(1, 64, kind)
    k = torch.ones(1, 64, 1, KEY)
    given = (q, k, v, torch.zeros_like(g), torch.ones(1, 64, 2))
    close(gated_delta_rule(*given, plain(1, 64))[0], ref.delta_rule(*(t[0] for t in given))[0], TOLERANCE)


def test_keys_and_queries_of_length_zero():
    q, k, v, g, beta = inputs(1, 9, "shared keys")
    q[:, 4], k[:, 2] = 0.0, 0.0
    given = [t.requires_grad_() for t in (q, k, v, g, beta)]
    y = gated_delta_rule(*given, plain(1, 9))
    close(y[0].detach(), ref.delta_rule(*(t[0].detach() for t in given))[0], TOLERANCE)
    assert not y[:, 4].any()
    y.sum().backward()
    assert all(t.grad.isfinite().all() for t in given)


def test_no_token():
    given = [t.requires_grad_() for t in inputs(1, 0, "shared keys")]
    initial = made(8, 2, 2, KEY, VALUE)
    y, last = delta_rule_chunks(*(t[0] for t in given), Spans.make([0, 0, 0], 16, CPU), initial)
    assert y.shape == (0, 2, VALUE) and torch.equal(last, initial)
    (y.sum() + last.sum()).backward()
    assert all(t.grad.shape == t.shape for t in given)


@pytest.mark.parametrize("length", [1, 18])
def test_values_in_half_precision_alone(length):
    q, k, v, g, beta = inputs(1, length, "shared keys")
    given = (q, k, v.half(), g, beta)
    with torch.no_grad():
        y = gated_delta_rule(*given, plain(1, length), state_of(torch.zeros(1, 2, KEY, VALUE)))
    assert y.dtype == torch.float16
    close(y[0], ref.delta_rule(*(t[0] for t in given))[0], 1e-3)


def test_what_the_kernels_cannot_do():
    given = inputs(1, 4, "shared keys")
    with pytest.raises(UsageError, match="fp64"):
        gated_delta_rule(*(t.double() for t in given), plain(1, 4))
    with pytest.raises(UsageError, match="257 wide"):
        gated_delta_rule(*inputs(1, 1, "shared keys", 257), plain(1, 1))


def test_compiled_kernels_fit():
    check_fits("hybridc.runtime.kernels.delta_rule")
