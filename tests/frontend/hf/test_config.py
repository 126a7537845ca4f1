"""Configs at the edge: what is not understood is an error by name, defaults are the config class's, and no config, old,
broken or hostile, is answered by anything but diagnostics."""

import copy
import json
import os
import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.hf import families, import_config
from hybridc.frontend.hf.config import IGNORED, MAX_BYTES
from hybridc.passes.analysis.cost import parameter_count
from tests.conftest import EXAMPLES

FAMILIES = ("falcon_h1", "llama", "mamba2", "mixtral")
LLAMA = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}


def codes(config):
    """(code, text) of each diagnostic that a config gets."""
    with pytest.raises(DiagnosticError) as caught:
        import_config(config)
    return [(d.code, d.label + " " + d.help) for d in caught.value.diagnostics]


def test_the_families():
    assert set(FAMILIES) <= set(families())


@pytest.mark.parametrize(
    ("edit", "code", "word"),
    [
        ({"model_type": "lama"}, "HYB501", "`llama`"),
        ({"model_type": None}, "HYB501", "nothing"),
        ({"model_type": "__init__"}, "HYB501", "__init__"),
        ({"model_type": "config"}, "HYB501", "config"),
        ({"frobnicate": 3}, "HYB502", "frobnicate"),
        ({"rms_norm_epsilon": 1e-3}, "HYB502", "rms_norm_eps"),
        ({"quantization_config": {"quant_method": "fp8", "bits": 8}}, "HYB503", "quantized by 'fp8'"),
        ({"hidden_act": "mish"}, "HYB503", "mish"),
        ({"hidden_size": "wide"}, "HYB503", "hidden_size"),
        ({"hidden_size": True}, "HYB503", "hidden_size"),
        ({"hidden_size": 32.0}, "HYB503", "hidden_size"),
        ({"hidden_size": 10**400}, "HYB503", "far too large"),
        ({"rms_norm_eps": float("nan")}, "HYB503", "rms_norm_eps"),
        ({"rms_norm_eps": 10**400}, "HYB503", "rms_norm_eps"),
        ({"rms_norm_eps": {"__float__": "one"}}, "HYB503", "rms_norm_eps"),
        ({"attention_bias": 1}, "HYB503", "attention_bias"),
        ({"num_attention_heads": -4}, "HYB503", "num_attention_heads"),
        ({"rope_theta": 0}, "HYB503", "rope_theta"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1.0}}, "HYB503", "rope_theta"),
        ({"num_hidden_layers": 10**9}, "HYB503", "num_hidden_layers"),
        ({"rope_interleaved": True}, "HYB503", "rope_interleaved"),
    ],
)
def test_what_is_not_understood_is_an_error_by_name(edit, code, word):
    assert any(c == code and word in text for c, text in codes({**LLAMA, **edit}))


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "mixtral", "router_jitter_noise": 0.1}, "router_jitter_noise"),
        ({"model_type": "mixtral", "sliding_window": 0}, "sliding_window"),
        ({"model_type": "mixtral", "num_local_experts": 10_000, "num_hidden_layers": 10_000}, "tensors"),
        ({"model_type": "mamba2", "num_heads": 3}, "num_heads"),
        ({"model_type": "mamba2", "hidden_act": "gelu"}, "gelu"),
        ({"model_type": "mamba2", "rms_norm": False}, "rms_norm"),
        ({"model_type": "mamba2", "time_step_limit": [0.0]}, "time_step_limit"),
        ({"model_type": "falcon_h1", "mamba_d_head": 7}, "mamba_d_head"),
        ({"model_type": "falcon_h1", "mamba_d_head": "wide"}, "mamba_d_head"),
        ({"model_type": "falcon_h1", "mamba_use_mlp": False}, "mamba_use_mlp"),
        ({"model_type": "falcon_h1", "attn_layer_indices": [0]}, "attn_layer_indices"),
        ({"model_type": "falcon_h1", "layers_block_type": ["mamba"] * 32}, "layers_block_type"),
        ({"model_type": "falcon_h1", "ssm_multipliers": [1.0, 2.0]}, "ssm_multipliers"),
    ],
)
def test_values_that_a_family_does_not_honour(config, word):
    assert any(code == "HYB503" and word in text for code, text in codes(config))


def test_all_mistakes_of_a_config_are_shown_at_once():
    found = codes({**LLAMA, "frobnicate": 1, "hidden_act": "mish", "vocab_size": -1, "rope_scaling": {"type": "x"}})
    assert sorted(code for code, _ in found) == ["HYB502", "HYB503", "HYB503", "HYB503"]


def test_what_is_no_plain_file_is_not_read(tmp_path):
    """A device has no size and no end, and a pipe waits for a writer."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").symlink_to("/dev/zero")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "config.json")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "config.json").write_text(json.dumps({**LLAMA, "vocab_size": 16}))
    for name in ("a", "b", "c"):
        with pytest.raises(DiagnosticError) as caught:
            hybridc.from_hf(tmp_path / name)
        wanted = "HYB512" if name == "c" else "HYB500"
        assert [d.code for d in caught.value.diagnostics] == [wanted]
    for name in ("model.safetensors", "model.safetensors.index.json"):
        os.mkfifo(tmp_path / "c" / name)
        with pytest.raises(DiagnosticError) as caught:
            hybridc.from_hf(tmp_path / "c")
        assert caught.value.diagnostics[0].code == "HYB512" and "no plain file" in caught.value.diagnostics[0].label


def test_fields_of_published_configs():
    """google/recurrentgemma-2b and microsoft/Phi-4-mini-instruct have fields that no code reads."""
    recurrent = {"model_type": "recurrent_gemma", "_block_types": ["recurrent", "recurrent", "attention"]}
    assert import_config(recurrent) == import_config({"model_type": "recurrent_gemma"})
    extra = {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False}
    assert import_config({"model_type": "phi3", **extra}) == import_config({"model_type": "phi3"})
    assert {c for c, _ in codes({"model_type": "phi3", "mlp_bias": True, "full_attn_mod": 2})} == {"HYB503"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "3",
        "null",
        '{"model_type": 3}',
        '{"model_type": {}}',
        "{" + '"a":[' * 5000,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": "' + "x" * MAX_BYTES + '"}',
    ],
)
def test_broken_files(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DiagnosticError):
        hybridc.import_hf(tmp_path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DiagnosticError, match="HYB500"):
        hybridc.import_hf(tmp_path)
    with pytest.raises(DiagnosticError, match="HYB500"):
        hybridc.import_hf(tmp_path / "nowhere")
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(DiagnosticError, match="HYB500"):
        hybridc.import_hf(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises(DiagnosticError, match="HYB500"):
        hybridc.import_hf(tmp_path)


def test_dicts_that_no_file_can_hold():
    assert codes({**LLAMA, "x": {1, 2}})[0][0] == "HYB500"
    loop = {}
    loop["loop"] = loop
    assert codes({**LLAMA, **loop})[0][0] == "HYB500"


def test_a_config_is_left_as_it_is():
    config = {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}}
    before = copy.deepcopy(config)
    import_config(config)
    assert config == before


def test_numbers_that_json_lacks():
    """transformers 5 writes {"__float__": "Infinity"}, transformers 4 wrote a bare Infinity."""
    sizes = {"model_type": "mamba2", "hidden_size": 32, "num_heads": 8, "head_dim": 8, "num_hidden_layers": 1}
    plain = import_config(sizes)
    assert import_config({**sizes, "time_step_limit": [0.0, float("inf")]}) == plain
    assert import_config({**sizes, "time_step_limit": [0.0, {"__float__": "Infinity"}]}) == plain
    assert import_config({**sizes, "time_step_limit": [0.0, 0.5]}) != plain


def test_old_configs_are_read_alike(tmp_path):
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=2,
        rope_parameters={"rope_theta": 5000.0, "rope_type": "linear", "factor": 3.0},
    )
    new = json.loads(config.to_json_string(use_diff=False))
    old = {k: v for k, v in new.items() if k not in ("rope_parameters", "dtype", "head_dim")}
    old.update(rope_theta=5000.0, rope_scaling={"type": "linear", "factor": 3.0}, torch_dtype="float32")
    assert import_config({**old, "model_type": "llama"}) == import_config({**new, "model_type": "llama"})


@pytest.mark.parametrize("family", FAMILIES)
def test_absent_fields_have_the_defaults_of_the_config_class(family):
    """A config with no field but its depth is the class's own default model, and the class's own file says the same."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, num_hidden_layers=2)
    with torch.device("meta"):
        peer = AutoModelForCausalLM.from_config(config)
    module = hybridc.compile(import_config({"model_type": family, "num_hidden_layers": 2})).ir
    assert parameter_count(module) == sum(p.numel() for p in peer.parameters())
    written = json.loads(config.to_json_string(use_diff=False))
    assert hybridc.compile(import_config({**written, "model_type": family})).ir == module


@pytest.mark.parametrize("family", ["falcon_h1", "llama"])
def test_a_null_is_what_the_config_class_makes_of_it(family):
    """A class may put something else for None than for an absent field."""
    from transformers import AutoConfig

    full = json.loads(AutoConfig.for_model(family, num_hidden_layers=2).to_json_string(use_diff=False))
    tried = 0
    for name in sorted(set(full) - IGNORED - {"rope_parameters"}):
        try:
            peer = AutoConfig.for_model(family, **{"num_hidden_layers": 2, name: None})
        except Exception:  # the class does not take None there
            continue
        written = json.loads(peer.to_json_string(use_diff=False))
        if written.get(name) is not None:
            null = {**full, name: None, "model_type": family}
            assert import_config(null) == import_config({**written, "model_type": family}), name
            tried += 1
    assert tried >= 1


def test_a_null_of_an_old_mixture():
    """Version 4 of transformers took None there, for as many keys as queries; version 5's class refuses it."""
    sizes = {"model_type": "mixtral", "hidden_size": 64, "num_attention_heads": 16, "num_hidden_layers": 1}
    null, absent = ({**sizes, "num_key_value_heads": n} for n in (None, 8))
    assert import_config(null) == import_config({**sizes, "num_key_value_heads": 16})
    assert import_config(sizes) == import_config(absent)


STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([10**6, 10**18, 10**400, -(10**400), 2**31, 0.0, -1.5, 1e-300, 1e300]),
    st.floats(),
    st.sampled_from(["", "auto", "silu", "x" * 200, "default", "Infinity", "\0", "}{", 'a"b', "__class__"]),
    st.sampled_from([[], [0.5], [1, 2], [1.0] * 5, ["hybrid"] * 2, {}, {"type": "yarn"}, {"rope_type": "linear"}]),
    st.dictionaries(
        st.sampled_from(["rope_type", "type", "factor", "rope_theta", "original_max_position_embeddings", "__float__"]),
        st.one_of(
            st.sampled_from(["linear", "llama3", "yarn", "NaN"]),
            st.integers(-1, 9),
            st.floats(),
            st.none(),
            st.just([]),
        ),
        max_size=4,
    ),
)


def _fields():
    """The fields that the config classes have, with small sizes."""
    from transformers import AutoConfig

    small = dict(hidden_size=16, num_hidden_layers=2, vocab_size=20)
    attn = dict(small, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8)
    sizes = {
        "llama": attn,
        "mixtral": dict(attn, num_local_experts=3),
        "falcon_h1": dict(attn, mamba_d_ssm=16, mamba_n_heads=2, mamba_d_state=4),
        "mamba2": dict(small, num_heads=4, head_dim=8, state_size=4, n_groups=2),
    }
    for family, values in sizes.items():
        yield {**json.loads(AutoConfig.for_model(family, **values).to_json_string(use_diff=False)), **values}


@pytest.fixture(scope="module")
def bases():
    return list(_fields())


@given(st.data())
@settings(max_examples=EXAMPLES)
def test_a_mutated_config_is_a_spec_or_diagnostics(bases, data):
    config = copy.deepcopy(data.draw(st.sampled_from(bases)))
    names = st.one_of(
        st.sampled_from(sorted(config)), st.sampled_from(["rope_scaling", "rope_theta", "odd", "head_dim"])
    )
    for name in data.draw(st.lists(names, max_size=4)):
        if data.draw(st.booleans()):
            config[name] = data.draw(STRANGE)
        else:
            config.pop(name, None)
    start = time.perf_counter()
    try:
        spec = import_config(config)
        hybridc.compile(spec)
    except DiagnosticError as error:
        assert error.diagnostics
    assert time.perf_counter() - start < 5.0


def test_importing_a_config_imports_neither_torch_nor_another_family():
    code = (
        "import sys\n"
        "from hybridc.frontend.hf import import_config\n"
        "import_config({'model_type': 'llama'})\n"
        "loaded = [m for m in ('torch', 'sympy', 'pydantic', 'transformers', 'hybridc.frontend.hf.mamba2',\n"
        "                      'hybridc.checkpoints.weights') if m in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
