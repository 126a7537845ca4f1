"""Rotary positions against closed forms, transformers' frequencies and against turning by complex numbers."""

import pytest
import torch

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, close, made, packed, plain
from tests.runtime.ops.emitted import check_gradients, check_packed, check_pieces, check_ragged, layer

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


@pytest.mark.parametrize("name", ROPES)
def test_turning_is_a_complex_product(name):
    rope = ops.Rope(dim=8, theta=5000.0, **ROPES[name][0])
    positions = torch.tensor([[0, 1, 17, 900]])
    q, k = made(1, 1, 4, 2, 8), made(2, 1, 4, 1, 8)
    turned = ops.rope(q, k, rope.tables(positions))
    angles = positions.double()[0, :, None, None] * rope.frequencies().double()
    for x, got in zip((q, k), turned, strict=True):
        pairs = torch.complex(x[0, ..., :4].double(), x[0, ..., 4:].double())
        want = pairs * torch.polar(torch.full_like(angles, rope.magnitude()), angles)
        close(got[0], torch.cat((want.real, want.imag), -1), 2e-4 if name == "default" else 1e-3)


def test_tables_are_made_once_a_forward_at_the_documents_positions():
    rope = ops.Rope(dim=4)
    ctx = packed([0, 3, 3, 5])
    assert ctx.positions.tolist() == [[0, 1, 2, 0, 1]]
    assert ctx.rope(rope) is ctx.rope(ops.Rope(dim=4))
    assert torch.equal(ctx.rope(rope)[0][0, :3], plain(1, 3).rope(rope)[0][0])


@pytest.mark.parametrize("name", ROPES)
def test_turning_neighbours_is_a_complex_product(name):
    rope = ops.Rope(dim=8, theta=5000.0, interleaved=True, **ROPES[name][0])
    positions = torch.tensor([[0, 1, 17, 300]])
    q, k = made(1, 1, 4, 2, 10), made(2, 1, 4, 1, 10)
    for x, got in zip((q, k), ops.rope(q, k, rope.tables(positions)), strict=True):
        want = ref.turned(x[0], rope.frequencies(), positions[0], interleaved=True, magnitude=rope.magnitude())
        close(got[0], want, 5e-5)
        assert torch.equal(got[..., 8:], x[..., 8:])


SHORT, LONG = (1.0, 1.1, 1.5, 2.0), (1.0, 3.0, 8.0, 20.0)
LONGROPE = ops.Rope(dim=8, theta=100.0, kind="longrope", original_max=10, attention_factor=1.2, short=SHORT, long=LONG)


def divided(divisors, theta=100.0):
    """One frequency a pair: theta^(-2 i / d) over its divisor (Ding et al., 2024)."""
    pairs = len(divisors)
    return torch.tensor([theta ** (-i / pairs) / d for i, d in enumerate(divisors)], dtype=torch.float64)


def test_longrope_goes_by_the_length_of_each_document():
    borders = [0, 10, 21, 22, 22, 60]
    q = made(1, 1, 60, 2, 8)
    turned, _ = ops.rope(q, q, packed(borders).rope(LONGROPE))
    for s, e in ref.documents(borders):
        frequencies = divided(LONG if e - s > 10 else SHORT)
        close(turned[0, s:e], ref.turned(q[0, s:e], frequencies, magnitude=1.2))


def test_longrope_counts_what_the_cache_holds():
    """The third call brings row 0 to ten tokens and row 1 to eleven; the fourth, row 0 to eleven too."""
    cache = Cache([{}], 2, 20)
    for lengths in ([5, 4], [3, 6], [2, 1], [1, 1]):
        q = made(1, 1, sum(lengths), 2, 8)
        turned, _ = ops.rope(q, q, packed([0, lengths[0], sum(lengths)], cache).rope(LONGROPE))
        for row, part in enumerate(zip(q[0].split(lengths), turned[0].split(lengths), strict=True)):
            positions = cache.lengths[row] + torch.arange(lengths[row])
            frequencies = divided(LONG if cache.lengths[row] + lengths[row] > 10 else SHORT)
            close(part[1], ref.turned(part[0], frequencies, positions, magnitude=1.2))
        cache.advance(lengths)


def test_longrope_of_rows_with_one_past():
    cache = Cache([{}], 2, 20)
    for length in (9, 1, 1, 3):
        q = made(1, 2, length, 1, 8)
        turned, _ = ops.rope(q, q, plain(2, length, cache).rope(LONGROPE))
        positions = cache.lengths[0] + torch.arange(length)
        frequencies = divided(LONG if cache.lengths[0] + length > 10 else SHORT)
        for row in range(2):
            close(turned[row], ref.turned(q[row], frequencies, positions, magnitude=1.2))
        cache.advance([length] * 2)


@pytest.mark.parametrize("length", [64, 65])
def test_longrope_is_that_of_transformers(length):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=32,
        num_attention_heads=4,
        max_position_embeddings=512,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 100.0,
            "short_factor": list(SHORT),
            "long_factor": list(LONG),
            "original_max_position_embeddings": 64,
            "attention_factor": 1.2,
        },
    )
    frequencies, magnitude = ROPE_INIT_FUNCTIONS["longrope"](config, CPU, length)
    rope = ops.Rope(dim=8, theta=100.0, kind="longrope", original_max=64, attention_factor=1.2, short=SHORT, long=LONG)
    tables = rope.tables(torch.ones(1, 1, dtype=torch.int64), torch.tensor([[length]]))
    close(tables.cos[0, 0, 0], magnitude * frequencies.double().cos(), 1e-6)
    close(tables.sin[0, 0, 0], magnitude * frequencies.double().sin(), 1e-6)


def attention(heads, kv_heads, width, turned):
    """x [S, D] -> [S, D], with queries and keys that `turned` turns."""

    def run(x, qkv_weight, out_weight):
        q, k, v = (x @ qkv_weight.T).split((heads * width, kv_heads * width, kv_heads * width), dim=-1)
        q, k, v = (t.unflatten(-1, (-1, width)) for t in (q, k, v))
        return ref.attention(turned(q), turned(k), v, width**-0.5).flatten(-2) @ out_weight.T

    return run


def by_length(x):
    return ref.turned(x, divided((2.0, 5.0) if len(x) > 6 else (1.0, 1.5)), magnitude=1.1)


OPS = {
    "attention(heads=2, head_dim=6, rope=rope(theta=100, partial=0.67, interleaved=true))": attention(
        2, 2, 6, lambda x: ref.turned(x, divided((1.0, 1.0)), interleaved=True)
    ),
    "attention(heads=2, kv_heads=1, rope=rope(theta=100, kind=linear, factor=4))": attention(
        2, 1, 4, lambda x: ref.turned(x, divided((4.0, 4.0)))
    ),
}
LONG_OP = (
    "attention(heads=2, rope=rope(theta=100, kind=longrope, original_max=6, attention_factor=1.1, short=(1, 1.5), "
    "long=(2, 5)))"
)
LAYERS = {op: layer(op) for op in [*OPS, LONG_OP]}


@pytest.mark.parametrize("op", OPS)
def test_layers(op):
    check_packed(LAYERS[op], OPS[op], [0, 1, 9, 9, 30])
    for pieces in PIECES:
        check_pieces(LAYERS[op], OPS[op], pieces)
    check_ragged(LAYERS[op], OPS[op])
    check_gradients(LAYERS[op], OPS[op], [0, 1, 3, 12])


def test_a_layer_with_longrope():
    reference = attention(2, 2, 4, by_length)
    check_packed(LAYERS[LONG_OP], reference, [0, 6, 13, 14, 40])
    check_pieces(LAYERS[LONG_OP], reference, [2, 1, 3])
    check_pieces(LAYERS[LONG_OP], reference, [7, 1, 3])
    check_gradients(LAYERS[LONG_OP], reference, [0, 5, 12])
