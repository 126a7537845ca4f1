"""The files for transformers: short, valid for any name, the same each time, and true to the spec."""

import ast
import json
import subprocess
import sys

import pytest

import hybridc
from hybridc.checkpoints.transformers_package import as_transformers
from hybridc.codegen.package import write_package
from tests.runtime import zoo

SPEC = """model NAME {
  block H { x += rmsnorm() >> attention(heads=2) }
  embed = embedding(16, 8)
  layers = H * 2
  head = rmsnorm() >> lm_head(16)
}
"""
ADDED = {"config.json", "configuration_zoo.py", "modeling_zoo.py"}


def test_adds_three_files_that_the_manifest_lists():
    compiled = hybridc.compile(zoo.SPEC)
    emitted = as_transformers(compiled)
    assert set(emitted.source) - set(compiled.source) == ADDED
    assert set(json.loads(emitted.source["manifest.json"])["transformers"]) == ADDED
    assert {n: t for n, t in emitted.source.items() if n not in ADDED | {"manifest.json"}} == {
        n: t for n, t in compiled.source.items() if n != "manifest.json"
    }
    assert as_transformers(hybridc.compile(zoo.SPEC)).source == emitted.source
    assert all(len(emitted.source[name].splitlines()) <= 25 for name in ADDED)


def test_the_config_says_what_the_spec_says():
    source = as_transformers(hybridc.compile(zoo.SPEC), {"eos_token_id": [1, 2]}).source
    config = json.loads(source["config.json"])
    assert config == {
        "model_type": "hybridc_zoo",
        "architectures": ["ZooForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_zoo.ZooConfig",
            "AutoModelForCausalLM": "modeling_zoo.ZooForCausalLM",
        },
        "vocab_size": 50,
        "hidden_size": 32,
        "num_hidden_layers": 7,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "eos_token_id": [1, 2],
    }


@pytest.mark.parametrize("name", ["Model", "causalLM", "torch", "Config", "my_model_2", "hybridc", "x" * 100])
def test_any_name_makes_files_that_load(name, tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM

    compiled = as_transformers(hybridc.compile(SPEC.replace("NAME", name)))
    compiled.save(tmp_path / "m")
    config = AutoConfig.from_pretrained(tmp_path / "m", trust_remote_code=True)
    model = AutoModelForCausalLM.from_config(config, trust_remote_code=True)
    assert type(model).__name__ == next(iter(json.loads(compiled.source["config.json"])["architectures"]))
    for text in (t for n, t in compiled.source.items() if n.endswith(".py")):
        ast.parse(text)


def test_passes_the_house_s_linter(tmp_path):
    as_transformers(hybridc.compile(zoo.SPEC)).save(tmp_path / "zoo")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,I,B,UP"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_failure_while_filling_leaves_the_old_package(tmp_path):
    compiled = hybridc.compile(SPEC.replace("NAME", "m"))
    compiled.save(tmp_path / "p")

    def fail(folder):
        (folder / "half").write_text("")
        raise OSError(28, "No space left on device")

    with pytest.raises(hybridc.DiagnosticError, match="HYB404"):
        write_package(as_transformers(compiled).source, tmp_path / "p", fail)
    assert {p.name for p in (tmp_path / "p").iterdir()} == set(compiled.source)
    assert [p.name for p in tmp_path.iterdir()] == ["p"]
