"""Rotary positions against transformers' frequencies and against turning by complex numbers."""

import pytest
import torch

from hybridc.runtime import ops
from tests.runtime.ops.cases import close, made, packed, plain

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
