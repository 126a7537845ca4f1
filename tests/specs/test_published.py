"""The specs that the project ships: they check, they are formatted, and their parameter counts are the published
ones."""

import copy
import json
import os
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import hybridc
from hybridc.frontend.hf import families, import_config
from hybridc.ir.text import parse_module, print_module
from hybridc.passes.analysis.cost import parameter_count

SPECS = Path(__file__).parents[2] / "specs"
NAMES = sorted(p.stem for p in SPECS.glob("*.hyb"))

# tiiuae/Falcon-H1-0.5B-Base and meta-llama/Llama-3.2-1B: the sizes that the hub shows for their safetensors files.
# state-spaces/mamba2-130m is published as a pickled file, so its size is added up from the config that it comes with
# (d_model 768, 24 layers, 50,277 tokens padded to a multiple of 16) by the shapes of Dao and Gu's module.
MAMBA2_LAYER = 768 * (2 * 1536 + 2 * 128 + 24) + 1792 * (4 + 1) + 3 * 24 + 1536 + 1536 * 768 + 768
PUBLISHED = {
    "falcon_h1_0_5b": 521_411_104,
    "llama_1b": 1_235_814_400,
    "mamba2_130m": 50_288 * 768 + 24 * MAMBA2_LAYER + 768,
}

# the fields of the published configs that change the model, as their config.json files have them
CONFIGS = {
    "falcon_h1_0_5b": dict(
        model_type="falcon_h1", vocab_size=32784, hidden_size=1024, intermediate_size=2048, num_hidden_layers=36,
        num_attention_heads=8, num_key_value_heads=2, head_dim=64, rope_theta=1e11, rms_norm_eps=1e-5,
        mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_n_groups=1, mamba_d_state=128, mamba_d_conv=4,
        mamba_chunk_size=128, mamba_norm_before_gate=False, mamba_rms_norm=False, tie_word_embeddings=False,
        attention_in_multiplier=1.0, attention_out_multiplier=0.9375, embedding_multiplier=5.656854249492381,
        key_multiplier=0.390625, lm_head_multiplier=0.0390625, mlp_multipliers=[0.8838834764831844, 0.5859375],
        ssm_in_multiplier=1.25, ssm_out_multiplier=0.23570226039551587,
        ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
    ),
    "llama_1b": dict(
        model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_theta=500000.0, max_position_embeddings=131072,
        rope_scaling=dict(factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, rope_type="llama3",
                          original_max_position_embeddings=8192),
    ),
    "mamba2_130m": dict(
        model_type="mamba2", vocab_size=50288, hidden_size=768, num_hidden_layers=24, num_heads=24, head_dim=64,
        state_size=128, n_groups=1, tie_word_embeddings=True, rescale_prenorm_residual=True,
    ),
    "mixtral_tiny": dict(
        model_type="mixtral", vocab_size=32000, hidden_size=256, intermediate_size=448, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, sliding_window=1024,
        output_router_logits=True, router_aux_loss_coef=0.02,
    ),
}  # fmt: skip

# further families, a file each for those that belong together
for found in map(runpy.run_path, map(str, sorted((Path(__file__).parent / "published").glob("*.py")))):
    PUBLISHED |= found["PUBLISHED"]
    CONFIGS |= found["CONFIGS"]

# what else those files hold: fields of the library, of the tokenizer, of older versions
CARRIED = dict(
    architectures=["SomeForCausalLM"], attention_dropout=0.0, bos_token_id=1, eos_token_id=11, pad_token_id=0,
    torch_dtype="bfloat16", transformers_version="4.52.0.dev0", use_cache=True,
)  # fmt: skip
CARRIED_FALCON = dict(
    attn_layer_indices=None, mamba_expand=2, mamba_use_mlp=True, mlp_expansion_factor=8, num_logits_to_keep=1,
    projectors_bias=False, rope_scaling=None, mamba_conv_bias=True, mamba_proj_bias=False, mlp_bias=False,
)  # fmt: skip


def test_every_family_has_a_spec():
    assert {config["model_type"] for config in CONFIGS.values()} == set(families())
    assert set(CONFIGS) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_ships_clean(name):
    path = SPECS / f"{name}.hyb"
    assert hybridc.check(path).diagnostics == []
    text = path.read_text()
    assert hybridc.format_source(text) == text


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_is_the_published_one(name):
    assert parameter_count(hybridc.compile(SPECS / f"{name}.hyb").ir) == PUBLISHED[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_parameter_count_is_that_of_transformers(name):
    from transformers import AutoConfig, AutoModelForCausalLM

    values = copy.deepcopy(CONFIGS[name])  # transformers writes into what it is given
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("meta"):
        peer = AutoModelForCausalLM.from_config(config)
    # what routers correct their choice by is a parameter here and in the files, and a buffer there
    corrections = [b for n, b in peer.named_buffers() if n.endswith("bias")]
    tensors = [*peer.parameters(), *corrections]
    assert parameter_count(hybridc.compile(SPECS / f"{name}.hyb").ir) == sum(t.numel() for t in tensors)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_published_config_is_imported_as_the_spec(name):
    carried = {**CARRIED, **(CARRIED_FALCON if name.startswith("falcon_h1") else {})}
    imported = hybridc.compile(import_config({**carried, **CONFIGS[name]})).ir
    written = hybridc.compile(SPECS / f"{name}.hyb").ir
    # a spec's params are handles for its reader; the sizes that they stand for are compared in the blocks
    assert replace(imported, name=written.name, params=written.params) == written


@pytest.mark.parametrize("name", NAMES)
def test_the_ir_and_the_emitted_code_are_as_reviewed(name):
    """Run with HYBRIDC_UPDATE_GOLDEN=1 to write them anew, and review the difference."""
    compiled = hybridc.compile(SPECS / f"{name}.hyb")
    golden = {f"{name}.ir": print_module(compiled.ir), f"{name}.model.py": compiled.source["model.py"]}
    for file, text in golden.items():
        path = SPECS / "golden" / file
        if os.environ.get("HYBRIDC_UPDATE_GOLDEN"):
            path.write_text(text)
        assert path.read_text() == text, f"{file} has changed"
    assert parse_module(golden[f"{name}.ir"]) == compiled.ir


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_counts_what_the_module_has(name):
    compiled = hybridc.compile(SPECS / f"{name}.hyb")
    with torch.device("meta"):
        net = compiled.load(init=False)
    manifest = json.loads(compiled.source["manifest.json"])
    assert manifest["parameter_count"] == sum(p.numel() for p in net.parameters())
    shapes = {n: list(p.shape) for n, p in net.named_parameters(remove_duplicate=False)}
    for block, entry in manifest["blocks"].items():
        prefix = block if block in ("embed", "head") else None
        for parameter in entry["parameters"]:
            found = [
                s
                for n, s in shapes.items()
                if n.endswith("." + parameter["name"]) and (not prefix or n.startswith(prefix))
            ]
            assert parameter["shape"] in found
