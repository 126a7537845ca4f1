"""Rotary settings of old and new configs: frequencies and magnitudes are those that transformers makes of the same
config."""

import copy

import pytest
import torch

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.hf import import_config

SIZES = dict(
    hidden_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    num_hidden_layers=1,
    intermediate_size=8,
    vocab_size=16,
    max_position_embeddings=512,
)
YARN = dict(factor=4.0, original_max_position_embeddings=64)
CASES = {
    "nothing": {},
    "old theta": {"rope_theta": 5000.0},
    "old theta, whole number": {"rope_theta": 1000000},
    "old theta, no scaling": {"rope_theta": 5000.0, "rope_scaling": None},
    "old linear": {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 3.0}},
    "old linear, new word": {"rope_scaling": {"rope_type": "linear", "factor": 2}},
    "old llama3": {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
    "old yarn": {"rope_scaling": {"type": "yarn", **YARN}},
    "new default": {"rope_parameters": {"rope_type": "default", "rope_theta": 777.0}},
    "new goes before an outer theta": {
        "rope_theta": 5.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 777.0},
    },
    "outer theta": {"rope_theta": 777.0, "rope_parameters": {"rope_type": "default"}},
    "old goes before new": {
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "rope_parameters": {"rope_type": "default", "rope_theta": 777.0},
    },
    "new llama3, no length": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 300.0,
            "factor": 8.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 3.0,
        }
    },
    "yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 900.0, **YARN}},
    "yarn, no length": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 900.0, "factor": 2.0}},
    "yarn, no factor": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 900.0,
            "factor": None,
            "original_max_position_embeddings": 64,
        }
    },
    "yarn, bounds": {
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 900.0, **YARN, "beta_fast": 20.0, "beta_slow": 2.0}
    },
    "yarn, not rounded": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 900.0, **YARN, "truncate": False}},
    "yarn, magnitude": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 900.0, **YARN, "attention_factor": 1.3}},
    "yarn, mscale": {
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 900.0, **YARN, "mscale": 1.0, "mscale_all_dim": 0.7}
    },
    "yarn, mscale alone": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 900.0, **YARN, "mscale": 0.5}},
    "yarn, magnitude before mscale": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 900.0,
            **YARN,
            "attention_factor": 1.1,
            "mscale": 1.0,
            "mscale_all_dim": 0.7,
        }
    },
    "shrinking yarn": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 900.0,
            "factor": 0.5,
            "original_max_position_embeddings": 64,
            "mscale": 1.0,
            "mscale_all_dim": 0.7,
        }
    },
}


def ours(config):
    """The record of rotary positions in the emitted module of a config."""
    net = hybridc.compile(import_config(config)).load(init=False)
    return type(net).forward.__globals__["ROPE"]


@pytest.mark.parametrize("family", ["llama", "mixtral"])
@pytest.mark.parametrize("name", CASES)
def test_frequencies_and_magnitude_are_theirs(name, family):
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    from transformers.models.mixtral.modeling_mixtral import MixtralRotaryEmbedding

    settings = {**SIZES, **CASES[name]}
    config = AutoConfig.for_model(family, **copy.deepcopy(settings))
    peer = {"llama": LlamaRotaryEmbedding, "mixtral": MixtralRotaryEmbedding}[family](config)
    rope = ours({"model_type": family, **settings})
    torch.testing.assert_close(rope.frequencies(), peer.inv_freq, rtol=1e-6, atol=0)
    assert rope.magnitude() == pytest.approx(peer.attention_scaling, rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "code", "word"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "HYB503", "dynamic"),
        ({"rope_scaling": {"type": "linear"}}, "HYB503", "factor"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "HYB503", "factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "HYB503", "factor"),
        ({"rope_scaling": {"type": "linear", "factor": 10**400}}, "HYB503", "factor"),
        ({"rope_scaling": {"type": "llama3", "factor": 2.0, "low_freq_factor": 1.0}}, "HYB503", "high_freq_factor"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 3.0}}, "HYB502", "beta_fast"),
        ({"rope_scaling": "linear"}, "HYB503", "rope_scaling"),
        ({"rope_scaling": {"type": ["linear"]}}, "HYB503", "type"),
        ({"rope_theta": float("inf")}, "HYB503", "rope_theta"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "big"}}, "HYB503", "rope_theta"),
        # transformers' module ignores it for one kind and fails for the others: the checkpoint cannot mean it
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "HYB503", "whole heads"),
        ({"partial_rotary_factor": 0.5}, "HYB502", "partial_rotary_factor"),
        # one dict a kind of layer: for families with two kinds
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "HYB502", "full_attention"),
    ],
)
def test_settings_that_are_not_honoured_are_errors_by_name(settings, code, word):
    with pytest.raises(DiagnosticError) as caught:
        import_config({"model_type": "llama", **SIZES, **settings})
    assert any(d.code == code and word in d.label + d.help for d in caught.value.diagnostics)


@pytest.mark.parametrize(
    "settings",
    [
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        {"partial_rotary_factor": 0.5},
        {"partial_rotary_factor": 0.25, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ],
)
def test_a_family_that_rotates_a_part_of_each_head_may_say_so(settings):
    """As StableLM does, whose rotary module takes `partial_rotary_factor`."""
    from transformers.models.stablelm.configuration_stablelm import StableLmConfig
    from transformers.models.stablelm.modeling_stablelm import StableLmRotaryEmbedding

    from hybridc.frontend.hf.config import Config
    from hybridc.frontend.hf.rope import rope

    peer = StableLmRotaryEmbedding(StableLmConfig(**SIZES, **copy.deepcopy(settings)))
    config = Config({**SIZES, **settings}, "stablelm")
    made = rope(config, theta=10000.0, max_positions=4096, partial=0.25, may_be_partial=True)
    config.sink.check()
    given = {k.name: k.value.value for k in made.kwargs}
    assert int(16 * given["partial"]) == 2 * len(peer.inv_freq)
