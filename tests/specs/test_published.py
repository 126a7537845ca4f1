"""The specs that the project ships: they check, they are formatted, and their parameter counts are the published
ones."""

import json
import os
from pathlib import Path

import pytest
import torch

import hybridc
from hybridc.ir.text import parse_module, print_module
from hybridc.passes.analysis.cost import parameter_count

SPECS = Path(__file__).parents[2] / "specs"
NAMES = sorted(p.stem for p in SPECS.glob("*.hyb"))

# what the hub's own parameter counters show for the published weights
PUBLISHED = {
    "falcon_h1_0_5b": 521_411_104,  # tiiuae/Falcon-H1-0.5B-Base
    "llama_1b": 1_235_814_400,  # meta-llama/Llama-3.2-1B
    "mamba2_130m": 128_989_632,  # state-spaces/mamba2-130m, padded vocabulary
}

CONFIGS = {
    "falcon_h1_0_5b": dict(
        model_type="falcon_h1", vocab_size=32784, hidden_size=1024, intermediate_size=2048, num_hidden_layers=36,
        num_attention_heads=8, num_key_value_heads=2, head_dim=64, mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64,
        mamba_n_groups=1, mamba_d_state=128, mamba_chunk_size=128,
    ),
    "llama_1b": dict(
        model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True,
    ),
    "mamba2_130m": dict(
        model_type="mamba2", vocab_size=50288, hidden_size=768, num_hidden_layers=24, num_heads=24, head_dim=64,
        state_size=128, n_groups=1, tie_word_embeddings=True,
    ),
    "mixtral_tiny": dict(
        model_type="mixtral", vocab_size=32000, hidden_size=256, intermediate_size=448, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2,
    ),
}  # fmt: skip


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

    values = dict(CONFIGS[name])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("meta"):
        peer = AutoModelForCausalLM.from_config(config)
    assert parameter_count(hybridc.compile(SPECS / f"{name}.hyb").ir) == sum(p.numel() for p in peer.parameters())


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
