"""The ways in which a config of OLMo Hybrid says whether its attention knows positions, held against transformers."""

import copy

import pytest

import hybridc
from hybridc.frontend.hf import read

CONFIG = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=4,
    num_attention_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    max_position_embeddings=64,
)
WAYS = [
    {},
    dict(rope_theta=None),
    dict(rope_theta=500.0),
    dict(rope_parameters=None),
    dict(rope_parameters=dict(rope_theta=None)),
    dict(rope_parameters=dict(rope_theta=700.0), rope_theta=None),
    dict(rope_parameters=dict(rope_theta=None), rope_theta=500.0),
    dict(rope_parameters=dict(rope_type="default"), rope_theta=None),
]


@pytest.mark.parametrize("way", WAYS)
def test_the_base_is_that_of_transformers(way):
    from transformers import AutoConfig

    # transformers writes into what it is given
    wanted = AutoConfig.for_model("olmo_hybrid", **CONFIG, **copy.deepcopy(way)).rope_parameters["rope_theta"]
    ir = hybridc.compile(read({"model_type": "olmo_hybrid", **CONFIG, **way}).spec).ir
    [attn] = [node.op for block in ir.blocks for node in block.nodes if node.path == "attn"]
    assert (attn.rope and attn.rope.theta) == wanted
