"""The gated delta rule against the recurrence in float64, token after token, and the layers that are made of it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain
from tests.runtime.ops.emitted import check_gradients, check_packed, check_pieces, check_ragged, layer

SHAPES = {
    "a decay a head": dict(heads=2, key_heads=2, channels=False),
    "shared keys": dict(heads=4, key_heads=2, channels=False),
    "a decay a channel": dict(heads=2, key_heads=2, channels=True),
    "shared keys, a decay a channel": dict(heads=2, key_heads=1, channels=True),
}
shapes = pytest.mark.parametrize("shape", SHAPES)
KEY, VALUE = 3, 4


def inputs(rows, length, heads, key_heads, channels):
    """q, k, v, g and beta; β goes up to 2, where a state turns over."""
    q, k = (made(n, rows, length, key_heads, KEY) for n in (1, 2))
    v = made(3, rows, length, heads, VALUE)
    generator = torch.Generator().manual_seed(4)
    g = -3 * torch.rand(rows, length, heads, *([KEY] if channels else []), generator=generator).square()
    return q, k, v, g, 2 * torch.rand(rows, length, heads, generator=generator)


def state_of(rows, heads):
    return ops.MambaState(rows, conv=(1, 2), ssm=(heads, KEY, VALUE), device=CPU, dtype=torch.float32)


@shapes
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 64, 130])
def test_any_length(length, shape):
    given = inputs(2, length, **SHAPES[shape])
    y = ops.gated_delta_rule(*given, plain(2, length))
    for row in range(2):
        close(y[row], ref.delta_rule(*(t[row] for t in given))[0])


@given(borders, st.sampled_from(list(SHAPES)), st.booleans())
@settings(max_examples=30)
def test_packed_documents(borders, shape, start):
    given, heads, documents = inputs(1, borders[-1], **SHAPES[shape]), SHAPES[shape]["heads"], len(borders) - 1
    state = state_of(documents, heads)
    initial = made(8, documents, heads, KEY, VALUE) if start else torch.zeros(documents, heads, KEY, VALUE)
    state.ssm.copy_(initial)
    with torch.no_grad():
        y = ops.gated_delta_rule(*given, packed(borders), state)
    for n in range(documents):
        s, e = borders[n : n + 2]
        want, last = ref.delta_rule(*(t[0, s:e] for t in given), initial[n])
        close(y[0, s:e], want)
        close(state.ssm[n], last)


@shapes
@pytest.mark.parametrize("pieces", [*PIECES, [70, 1, 66]], ids=str)
def test_a_cache_filled_in_pieces(pieces, shape):
    total, heads = sum(pieces), SHAPES[shape]["heads"]
    given, got, at = inputs(2, total, **SHAPES[shape]), [], 0
    state = state_of(2, heads)
    cache = Cache([{"op": state}], 2, total)
    with torch.no_grad():
        for n in pieces:
            got.append(ops.gated_delta_rule(*(t[:, at : at + n] for t in given), plain(2, n, cache), state))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        want, last = ref.delta_rule(*(t[row] for t in given))
        close(torch.cat(got, 1)[row], want)
        close(state.ssm[row], last)


@shapes
@pytest.mark.parametrize("border", [[0, 9], [0, 1, 9, 9, 30], [0, 70]], ids=str)
def test_gradients(border, shape):
    given = inputs(1, border[-1], **SHAPES[shape])
    got = gradients(lambda *i: ops.gated_delta_rule(*i, packed(border)), given)

    def sequential(*i):
        return torch.cat([ref.delta_rule(*(t[0, s:e] for t in i))[0] for s, e in ref.documents(border)])[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


@shapes
def test_gradients_of_a_token_behind_a_state(shape):
    """What came before is a constant, as in every cache."""
    given, heads = inputs(1, 1, **SHAPES[shape]), SHAPES[shape]["heads"]
    initial = made(8, heads, KEY, VALUE)

    def ours(*i):
        state = state_of(1, heads)
        state.ssm = initial[None].clone()
        return ops.gated_delta_rule(*i, plain(1, 1), state)

    want = gradients(lambda *i: ref.delta_rule(*(t[0] for t in i), initial)[0][None], [i.double() for i in given])
    for g, w in zip(gradients(ours, given), want, strict=True):
        close(g, w)


@shapes
def test_derivatives_by_differences(shape):
    """fp64 all through, against central differences."""
    given = [i.double().requires_grad_() for i in inputs(1, 7, **SHAPES[shape])]
    assert torch.autograd.gradcheck(lambda *i: ops.gated_delta_rule(*i, packed([0, 3, 7])), given)


@shapes
def test_a_decay_far_beyond_float32_leaves_the_near_tokens_exact(shape):
    """Running sums reach thousands; what lies between two neighbours must not be lost in them."""
    q, k, v, g, beta = inputs(1, 62, **SHAPES[shape])
    strong = (torch.arange(62) % 5 == 0).view(1, 62, *[1] * (g.dim() - 2))
    given = (q, k, v, torch.where(strong, -900.0, g / 100), beta)
    close(ops.gated_delta_rule(*given, plain(1, 62))[0], ref.delta_rule(*(t[0] for t in given))[0], 3e-6)


def test_keys_and_queries_of_length_zero():
    q, k, v, g, beta = inputs(1, 9, **SHAPES["shared keys"])
    q[:, 4], k[:, 2] = 0.0, 0.0
    y = ops.gated_delta_rule(q, k, v, g, beta, plain(1, 9))
    assert not y[:, 4].any()
    close(y[0], ref.delta_rule(q[0], k[0], v[0], g[0], beta[0])[0])
    got = gradients(lambda *i: ops.gated_delta_rule(*i, plain(1, 9)), [q, k, v, g, beta])
    assert all(g.isfinite().all() for g in got)


@shapes
def test_half_inputs_are_computed_in_fp32(shape):
    given = [t.to(torch.bfloat16) for t in inputs(1, 40, **SHAPES[shape])]
    y = ops.gated_delta_rule(*given, plain(1, 40))
    assert y.dtype == torch.bfloat16
    # half a unit in the last of 8 bits
    want = ref.delta_rule(*(t[0] for t in given))[0]
    assert ((y[0].double() - want).abs() <= want.abs() * 2**-8 + 1e-5).all()


def silu(x):
    return x / (1 + torch.exp(-x))


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def softplus(x):
    return torch.log1p(torch.exp(x))


def normed(y, weight, eps, groups=1):
    parts = y.unflatten(-1, (groups, -1))
    return (parts / torch.sqrt((parts * parts).mean(-1, keepdim=True) + eps)).flatten(-2) * weight


def gated_delta_net(key_heads, keys, heads, values, act=silu, most=1.0, gate=None):
    """A layer of Yang et al., 2024, x [S, D] -> [S, D]; `gate` (y, z, the norm's weight) -> a head's gated result."""

    def run(x, in_proj_weight, conv_weight, A_log, dt_bias, out_proj_weight, norm_weight=None):
        widths = (2 * key_heads * keys + heads * values, heads * values, heads, heads)
        qkv, z, b, a = (x @ in_proj_weight.T).split(widths, dim=-1)
        q, k, v = act(ref.conv(qkv, conv_weight, None)).split((key_heads * keys,) * 2 + (heads * values,), dim=-1)
        q, k, v = q.unflatten(-1, (key_heads, keys)), k.unflatten(-1, (key_heads, keys)), v.unflatten(-1, (heads, -1))
        g = -torch.exp(A_log) * softplus(a + dt_bias)
        y, _ = ref.delta_rule(q, k, v, g, most * sigmoid(b))
        z = z.unflatten(-1, (heads, -1))
        return (y * silu(z) if gate is None else gate(y, z, norm_weight)).flatten(-2) @ out_proj_weight.T

    return run


def kda(heads, width, rank=0, act=silu, bound=None, gate=None):
    """A layer of Kimi Linear, 2025, x [S, D] -> [S, D], with `gate` as above."""

    def run(x, in_proj_weight, conv_weight, A_log, dt_bias, out_proj_weight, norm_weight=None, **up):
        inner = heads * width
        qkv, b, f, z = (x @ in_proj_weight.T).split((3 * inner, heads, rank or inner, rank or inner), dim=-1)
        if rank:
            f, z = f @ up["f_up_weight"].T, z @ up["z_up_weight"].T
        q, k, v = (t.unflatten(-1, (heads, width)) for t in act(ref.conv(qkv, conv_weight, None)).chunk(3, dim=-1))
        f, rate = (f + dt_bias).unflatten(-1, (heads, width)), torch.exp(A_log)[:, None]
        g = -rate * softplus(f) if bound is None else bound * sigmoid(rate * f)
        y, _ = ref.delta_rule(q, k, v, g, sigmoid(b))
        z = z.unflatten(-1, (heads, width))
        return (y * sigmoid(z) if gate is None else gate(y, z, norm_weight)).flatten(-2) @ out_proj_weight.T

    return run


OPS = {
    "gated_delta_net(heads=2, key_dim=3)": gated_delta_net(2, 3, 2, 3),
    "gated_delta_net(heads=4, key_heads=2, key_dim=3, value_dim=5, conv=2, neg_eigval=true, norm=gated_rmsnorm("
    "eps=0.01, gate_first=false))": gated_delta_net(
        2, 3, 4, 5, most=2.0, gate=lambda y, z, w: normed(y, w, 0.01) * silu(z)
    ),
    "gated_delta_net(heads=2, key_heads=1, key_dim=4, act=relu, norm=gated_rmsnorm(act=sigmoid, groups=2))": (
        gated_delta_net(1, 4, 2, 4, act=torch.relu, gate=lambda y, z, w: normed(y * sigmoid(z), w, 1e-5, 2))
    ),
    "kda(heads=2, head_dim=3)": kda(2, 3),
    "kda(heads=3, head_dim=4, gate_rank=2, conv=3, norm=gated_rmsnorm(gate_first=false, act=sigmoid))": kda(
        3, 4, 2, gate=lambda y, z, w: normed(y, w, 1e-5) * sigmoid(z)
    ),
    "kda(heads=2, head_dim=4, act=relu, lower_bound=-5)": kda(2, 4, act=torch.relu, bound=-5.0),
}
LAYERS = {op: layer(op) for op in OPS}
layers = pytest.mark.parametrize("op", OPS)


@given(borders, st.sampled_from(list(OPS)))
@settings(max_examples=30)
def test_layers_of_packed_documents(borders, op):
    check_packed(LAYERS[op], OPS[op], borders)


@layers
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_layers_cache_filled_in_pieces(pieces, op):
    check_pieces(LAYERS[op], OPS[op], pieces)


@layers
def test_a_layers_cache_of_rows_of_different_length(op):
    check_ragged(LAYERS[op], OPS[op])


@layers
def test_gradients_of_layers(op):
    check_gradients(LAYERS[op], OPS[op], [0, 1, 3, 12])
