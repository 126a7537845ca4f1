"""recurrent_gemma at the edge of its config: defaults, other spellings, what is refused, and the way back."""

import json

import pytest
import torch

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.document import print_spec
from hybridc.frontend.hf import export_config, import_config, read
from hybridc.frontend.hf.recurrent_gemma import bf16
from hybridc.passes.analysis.cost import parameter_count

SIZES = {
    "model_type": "recurrent_gemma",
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
}


def theirs(**fields):
    """The config that the public class makes of fields, as it is written to a file."""
    from transformers import AutoConfig

    values = {**SIZES, **fields}
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    return json.loads(config.to_json_string(use_diff=False))


def test_defaults_are_those_of_the_class():
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("recurrent_gemma", num_hidden_layers=3)
    with torch.device("meta"):
        peer = AutoModelForCausalLM.from_config(config)
    bare = {"model_type": "recurrent_gemma", "num_hidden_layers": 3}
    assert parameter_count(hybridc.compile(import_config(bare)).ir) == sum(p.numel() for p in peer.parameters())
    assert import_config(json.loads(config.to_json_string(use_diff=False))) == import_config(bare)


@pytest.mark.parametrize(
    "fields",
    [
        {"sliding_window": 7},
        {"partial_rotary_factor": 0.25},
        {"rope_theta": 77.0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 99.0}},
        {"num_key_value_heads": None},
        {"lru_width": None},
        {"head_dim": 10},
        {"final_w_init_variance_scale": 0.5},
    ],
    ids=str,
)
def test_a_field_means_what_the_class_makes_of_it(fields):
    assert import_config({**SIZES, **fields}) == import_config(theirs(**fields))


def test_a_null_share_of_rotated_channels_is_all_of_them():
    """The class takes 0.5 where the field is absent, and its rope takes 1 where it is null."""
    from transformers import RecurrentGemmaConfig
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRotaryEmbedding

    rotary = RecurrentGemmaRotaryEmbedding(RecurrentGemmaConfig(partial_rotary_factor=None))
    assert 2 * rotary.inv_freq.numel() == 256
    null, whole, half = (import_config({**SIZES, "partial_rotary_factor": v}) for v in (None, 1.0, 0.5))
    assert null == whole and half == import_config(SIZES)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"block_types": []}, "block_types"),
        ({"block_types": ["recurrent", "attn"]}, "attention"),
        ({"block_types": ["attention"], "num_hidden_layers": 101}, "num_hidden_layers"),
        ({"attention_window_size": 0}, "attention_window_size"),
        ({"attention_window_size": 9, "sliding_window": 7}, "sliding_window"),
        ({"logits_soft_cap": None}, "logits_soft_cap"),
        ({"logits_soft_cap": 0.0}, "logits_soft_cap"),
        ({"lru_width": 30}, "lru_width"),
        ({"conv1d_width": 1}, "conv1d_width"),
        ({"intermediate_size": 1}, "intermediate_size"),
        ({"hidden_activation": "tanh"}, "hidden_activation"),
        ({"embeddings_scale_by_sqrt_dim": False}, "embeddings_scale_by_sqrt_dim"),
        ({"w_init_variance_scale": 0.0}, "w_init_variance_scale"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types"),
    ],
    ids=str,
)
def test_what_is_refused_is_named(fields, word):
    with pytest.raises(DiagnosticError) as caught:
        import_config({**SIZES, **fields})
    assert any(word in d.label + d.help for d in caught.value.diagnostics)


@pytest.mark.parametrize("value", [1.0, 6.3245553, 50.596443, 2**0.5, 3.00390625, 3.01171875, 255.7])
def test_the_embeddings_factor_is_rounded_as_torch_rounds(value):
    assert bf16(value) == torch.tensor(value, dtype=torch.bfloat16).item()


@pytest.mark.parametrize(
    "fields",
    [
        {"block_types": ["attention"], "conv1d_width": 3},
        {"block_types": ["recurrent"], "conv1d_width": 3},
        {"block_types": ["attention", "recurrent", "recurrent", "recurrent"], "w_init_variance_scale": 0.7},
        {"hidden_size": 1, "num_attention_heads": 1, "head_dim": 8},
    ],
    ids=str,
)
def test_import_is_a_fixed_point(fields):
    imported = read({**SIZES, **fields})
    config = export_config(hybridc.compile(print_spec(imported.spec)).ir, imported.family)
    assert read(config).spec == imported.spec
    assert config["block_types"] == fields.get("block_types", ["recurrent", "recurrent", "attention"])
