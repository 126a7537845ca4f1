"""Every mixer against a float64 model of it: plain rows, packed documents, caches filled in pieces, gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from hybridc.runtime.context import Context, PackedSeq
from tests.runtime.ops import reference as ref

CPU = torch.device("cpu")


def packed(borders):
    ids = torch.zeros(1, borders[-1], dtype=torch.int64)
    return Context(ids, seq=PackedSeq(torch.tensor(borders, dtype=torch.int32)))


def plain(rows, length, cache=None):
    return Context(torch.zeros(rows, length, dtype=torch.int64), cache=cache)


def made(seed, *shape, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scan_inputs(rows, length, heads=4, head_dim=3, groups=2, state=5):
    dt = torch.rand(rows, length, heads, generator=torch.Generator().manual_seed(2)) * 1.5
    a = -(0.1 + 15 * torch.rand(heads, generator=torch.Generator().manual_seed(3)))
    x, b, c = (
        made(1, rows, length, heads, head_dim),
        made(4, rows, length, groups, state),
        made(5, rows, length, groups, state),
    )
    return x, dt, a, b, c, made(6, heads)


def selective_inputs(rows, length, dim=5, state=4):
    dt = torch.rand(rows, length, dim, generator=torch.Generator().manual_seed(2))
    a = -(0.1 + 15 * torch.rand(dim, state, generator=torch.Generator().manual_seed(3)))
    return made(1, rows, length, dim), dt, a, made(4, rows, length, state), made(5, rows, length, state), made(6, dim)


borders = (
    st.lists(st.integers(0, 21), min_size=1, max_size=6)
    .map(lambda lengths: [0, *(sum(lengths[: n + 1]) for n in range(len(lengths)))])
    .filter(lambda b: b[-1] > 0)
)


@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("length", [1, 2, 15, 33])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_ssd_for_any_length_and_chunk(length, chunk, groups):
    x, dt, a, b, c, d = scan_inputs(2, length, groups=groups)
    y = ops.ssd(x, dt, a, b, c, d, plain(2, length), None, chunk=chunk)
    for row in range(2):
        ref.close(y[row], ref.ssd(x[row], dt[row], a, b[row], c[row], d)[0])


@given(borders, st.sampled_from([1, 4, 8, 64]))
@settings(max_examples=40)
def test_ssd_of_packed_documents(borders, chunk):
    x, dt, a, b, c, d = scan_inputs(1, borders[-1])
    y = ops.ssd(x, dt, a, b, c, d, packed(borders), None, chunk=chunk)
    for s, e in ref.documents(borders):
        if e > s:
            ref.close(y[0, s:e], ref.ssd(x[0, s:e], dt[0, s:e], a, b[0, s:e], c[0, s:e], d)[0])


@given(borders)
@settings(max_examples=40)
def test_selective_scan_of_packed_documents(borders):
    u, dt, a, b, c, d = selective_inputs(1, borders[-1])
    y = ops.selective_scan(u, dt, a, b, c, d, packed(borders), None)
    for s, e in ref.documents(borders):
        if e > s:
            ref.close(y[0, s:e], ref.selective_scan(u[0, s:e], dt[0, s:e], a, b[0, s:e], c[0, s:e], d)[0])


@given(borders, st.integers(2, 5), st.booleans())
@settings(max_examples=40)
def test_conv_of_packed_documents(borders, taps, bias):
    conv = ops.CausalConv1d(3, taps, bias=bias)
    x = made(1, 1, borders[-1], 3)
    y = conv(x, packed(borders))
    for s, e in ref.documents(borders):
        ref.close(y[0, s:e], ref.conv(x[0, s:e], conv.weight, conv.bias))


@given(borders, st.sampled_from([None, 1, 3, 8, 500]), st.sampled_from([(4, 4), (4, 2), (4, 1)]))
@settings(max_examples=40)
def test_attention_of_packed_documents(borders, window, heads):
    q, k, v = (made(n, 1, borders[-1], h, 6) for n, h in ((1, heads[0]), (2, heads[1]), (3, heads[1])))
    y = ops.attention(q, k, v, packed(borders), None, scale=0.3, window=window)
    for s, e in ref.documents(borders):
        if e > s:
            ref.close(y[0, s:e], ref.attention(q[0, s:e], k[0, s:e], v[0, s:e], 0.3, window))


@pytest.mark.parametrize("window", [None, 5, 150])
def test_attention_past_the_block_of_queries(window):
    q, k, v = made(1, 1, 300, 2, 4), made(2, 1, 300, 1, 4), made(3, 1, 300, 1, 4)
    y = ops.attention(q, k, v, plain(1, 300), None, scale=0.5, window=window)
    ref.close(y[0], ref.attention(q[0], k[0], v[0], 0.5, window))


def test_a_step_of_decay_far_beyond_float32_leaves_the_near_tokens_exact():
    """Running sums reach thousands; what lies between two neighbours must not be lost in them."""
    x, dt, a, b, c, d = scan_inputs(1, 64)
    dt = torch.where(torch.arange(64)[None, :, None] % 9 == 0, 60.0, 0.003).expand_as(dt)
    y = ops.ssd(x, dt, a, b, c, d, plain(1, 64), None, chunk=64)
    ref.close(y[0], ref.ssd(x[0], dt[0], a, b[0], c[0], d)[0], 2e-6)


PIECES = [[40], [1] * 12, [20, 1, 1, 1], [3, 9, 1, 17], [1, 30, 2]]


@pytest.mark.parametrize("pieces", PIECES, ids=str)
@pytest.mark.parametrize("op", ["ssd", "selective_scan", "attention", "windowed", "conv"])
def test_a_cache_filled_in_pieces_equals_one_pass(op, pieces):
    total = sum(pieces)
    rows = 2
    if op == "ssd":
        inputs = scan_inputs(rows, total)
        state = ops.MambaState(rows, conv=(1, 2), ssm=(4, 3, 5), device=CPU, dtype=torch.float32)
        shared = (inputs[2], inputs[5])
        run = lambda part, ctx: ops.ssd(part[0], part[1], shared[0], part[2], part[3], shared[1], ctx, state, chunk=8)  # noqa: E731
        streams = (inputs[0], inputs[1], inputs[3], inputs[4])
        want = [
            ref.ssd(inputs[0][r], inputs[1][r], inputs[2], inputs[3][r], inputs[4][r], inputs[5])[0]
            for r in range(rows)
        ]
    elif op == "selective_scan":
        inputs = selective_inputs(rows, total)
        state = ops.MambaState(rows, conv=(1, 2), ssm=(5, 4), device=CPU, dtype=torch.float32)
        shared = (inputs[2], inputs[5])
        run = lambda part, ctx: ops.selective_scan(part[0], part[1], shared[0], part[2], part[3], shared[1], ctx, state)  # noqa: E731
        streams = (inputs[0], inputs[1], inputs[3], inputs[4])
        want = [
            ref.selective_scan(inputs[0][r], inputs[1][r], inputs[2], inputs[3][r], inputs[4][r], inputs[5])[0]
            for r in range(rows)
        ]
    elif op == "conv":
        conv = ops.CausalConv1d(3, 4)
        state = ops.MambaState(rows, conv=(3, 4), ssm=(1,), device=CPU, dtype=torch.float32)
        run = lambda part, ctx: conv(part[0], ctx, state)  # noqa: E731
        streams = (made(1, rows, total, 3),)
        want = [ref.conv(streams[0][r], conv.weight, conv.bias) for r in range(rows)]
    else:
        window = 6 if op == "windowed" else None
        state = ops.KVState(rows, total, heads=2, head_dim=6, device=CPU, dtype=torch.float32)
        run = lambda part, ctx: ops.attention(*part, ctx, state, scale=0.4, window=window)  # noqa: E731
        streams = (made(1, rows, total, 4, 6), made(2, rows, total, 2, 6), made(3, rows, total, 2, 6))
        want = [ref.attention(*(s[r] for s in streams), 0.4, window) for r in range(rows)]
    cache = Cache([{"op": state}], rows, total)
    got, at = [], 0
    with torch.no_grad():
        for piece in pieces:
            ctx = plain(rows, piece, cache)
            got.append(run([s[:, at : at + piece] for s in streams], ctx))
            cache.advance([piece] * rows)
            at += piece
    for row in range(rows):
        ref.close(torch.cat(got, 1)[row], want[row])


def gradients(function, inputs):
    inputs = [i.clone().requires_grad_() for i in inputs]
    out = function(*inputs)
    (out * made(9, *out.shape).to(out.dtype)).sum().backward()
    return [i.grad for i in inputs]


@pytest.mark.parametrize("chunk", [3, 8, 64])
def test_gradients_of_ssd(chunk):
    border = [0, 1, 9, 22]
    inputs = scan_inputs(1, 22)
    got = gradients(lambda x, dt, a, b, c, d: ops.ssd(x, dt, a, b, c, d, packed(border), None, chunk=chunk), inputs)

    def sequential(x, dt, a, b, c, d):
        return torch.cat(
            [ref.ssd(x[0, s:e], dt[0, s:e], a, b[0, s:e], c[0, s:e], d)[0] for s, e in ref.documents(border)]
        )[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in inputs]), strict=True):
        ref.close(g, w)


def test_gradients_of_selective_scan():
    border = [0, 1, 9, 50]
    inputs = selective_inputs(1, 50)
    got = gradients(lambda *i: ops.selective_scan(*i, packed(border), None), inputs)

    def sequential(u, dt, a, b, c, d):
        return torch.cat(
            [ref.selective_scan(u[0, s:e], dt[0, s:e], a, b[0, s:e], c[0, s:e], d)[0] for s, e in ref.documents(border)]
        )[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in inputs]), strict=True):
        ref.close(g, w)


def test_gradients_of_a_scan_from_a_given_state():
    x, dt, a, b, c, _ = scan_inputs(1, 13)
    initial = made(8, 1, 4, 3, 5)

    def chunked(x, dt, a, b, c, h):
        y, last = ops.ssd(x, dt, a, b, c, chunk=4, initial_state=h, return_state=True)
        return torch.cat((y.flatten(), last.flatten()))

    def sequential(x, dt, a, b, c, h):
        y, last = ref.ssd(x[0], dt[0], a, b[0], c[0], torch.zeros(4), h[0])
        return torch.cat((y.flatten(), last.flatten()))

    inputs = [x, dt, a, b, c, initial]
    for g, w in zip(gradients(chunked, inputs), gradients(sequential, [i.double() for i in inputs]), strict=True):
        ref.close(g, w)


@pytest.mark.parametrize("experts", [1, 3, 8])
@pytest.mark.parametrize("k", [1, 2])
def test_experts_with_and_without_tokens(experts, k):
    if k > experts:
        k = experts
    layer = ops.Experts(experts, 6, 5)
    with torch.no_grad():
        layer.gate_up.copy_(made(1, experts, 10, 6))
        layer.down.copy_(made(2, experts, 6, 5))
    x = made(3, 2, 4, 6)
    logits = made(4, 2, 4, experts)
    logits[..., 0] += 20.0  # all tokens want one expert, so others may have none
    weights, ids = ops.softmax_topk(logits, k, renormalize=True)
    y = layer(x, weights, ids)
    want = ref.experts(x.reshape(8, 6), weights.reshape(8, k), ids.reshape(8, k), layer.gate_up, layer.down)
    ref.close(y.reshape(8, 6), want)
    y.sum().backward()
    assert layer.down.grad is not None and torch.isfinite(layer.down.grad).all()


def test_softmax_topk():
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    weights, ids = ops.softmax_topk(logits, 2, renormalize=False)
    total = sum(2.718281828459045**v for v in (0.0, 1.0, 2.0))
    assert ids.tolist() == [[2, 1]]
    torch.testing.assert_close(weights, torch.tensor([[2.718281828**2 / total, 2.718281828 / total]]))
    renormalised, _ = ops.softmax_topk(logits, 2, renormalize=True)
    torch.testing.assert_close(renormalised.sum(-1), torch.ones(1))


@pytest.mark.parametrize("gate_first", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gated_norm(groups, gate_first):
    norm = ops.GatedRMSNorm(8, eps=1e-3, groups=groups, gate_first=gate_first)
    with torch.no_grad():
        norm.weight.copy_(made(1, 8))
    x, z = made(2, 3, 8), made(3, 3, 8)
    gate = z.double() / (1 + (-z.double()).exp())
    y = x.double() * gate if gate_first else x.double()
    parts = y.unflatten(-1, (groups, 8 // groups))
    y = (parts / (parts.square().mean(-1, keepdim=True) + 1e-3).sqrt()).flatten(-2) * norm.weight.double()
    ref.close(norm(x, z), y if gate_first else y * gate, 1e-6)


ROPES = {
    "default": (dict(), dict(rope_type="default")),
    "linear": (dict(kind="linear", factor=4.0), dict(rope_type="linear", factor=4.0)),
    "llama3": (
        dict(kind="llama3", factor=8.0, original_max=64),
        dict(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    ),
    "yarn": (
        dict(kind="yarn", factor=4.0, original_max=128),
        dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128),
    ),
    "yarn exact": (
        dict(kind="yarn", factor=4.0, original_max=128, truncate=False, attention_factor=1.3, beta_fast=16.0),
        dict(
            rope_type="yarn",
            factor=4.0,
            original_max_position_embeddings=128,
            truncate=False,
            attention_factor=1.3,
            beta_fast=16.0,
        ),
    ),
}


@pytest.mark.parametrize("name", ROPES)
def test_rope_frequencies_are_those_of_transformers(name):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    ours, theirs = ROPES[name]
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        head_dim=16,
        max_position_embeddings=512,
        rope_parameters={"rope_theta": 5000.0, **theirs},
    )
    peer = LlamaRotaryEmbedding(config)
    rope = ops.Rope(dim=16, theta=5000.0, **ours)
    torch.testing.assert_close(rope.frequencies(), peer.inv_freq, rtol=1e-6, atol=0)
    assert rope.magnitude() == pytest.approx(peer.attention_scaling)


def test_partial_rope_leaves_the_rest_of_a_head():
    rope = ops.Rope(dim=4)
    q = made(1, 1, 5, 2, 10)
    turned, _ = ops.rope(q, q, rope.tables(torch.arange(5)[None]))
    assert torch.equal(turned[..., 4:], q[..., 4:])
    assert torch.equal(turned[:, 0], q[:, 0])
    # a pair's length does not change
    torch.testing.assert_close(turned[..., :4].norm(dim=-1), q[..., :4].norm(dim=-1))
