"""Folders of public checkpoints that nets are written as: transformers loads them and computes what the net does."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import hybridc
from hybridc.checkpoints import export
from hybridc.checkpoints.export import to_hf
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.document import print_spec
from hybridc.frontend.hf import read

GOLDENS = Path(__file__).parent.parent / "frontend" / "hf" / "goldens"
CASES = sorted(p.name for p in GOLDENS.iterdir() if p.is_dir())


def loadable(name):
    """Whether transformers computes from a folder what it computed when the golden was made. 5.24 rescales out_proj
    after loading where the config has rescale_prenorm_residual, and compiles its ternary products."""
    config = json.loads((GOLDENS / name / "config.json").read_text())
    return not config.get("rescale_prenorm_residual") and "quantization_config" not in config


LLAMA = """model mine {
  param dim = 16
  let n = rmsnorm(eps=1e-5)
  block Body {
    x += n >> attention(heads=4, kv_heads=2, rope=rope())
    x += n >> swiglu(24)
  }
  embed = embedding(40, dim)
  layers = Body * 2
  head = n >> lm_head(40)
}
"""


def codes(call):
    with pytest.raises(DiagnosticError) as caught:
        call()
    return [d.code for d in caught.value.diagnostics]


@pytest.mark.parametrize("name", [c for c in CASES if loadable(c)])
def test_transformers_loads_what_is_written(name, tmp_path):
    golden = load_file(GOLDENS / name / "golden.safetensors")
    net = hybridc.from_hf(GOLDENS / name)
    to_hf(net, tmp_path / "a")
    assert set(load_file(tmp_path / "a" / "model.safetensors")) <= set(load_file(GOLDENS / name / "model.safetensors"))
    # and from the spec alone, whose config is found by itself
    family = read(GOLDENS / name).family
    compiled = hybridc.compile(print_spec(read(GOLDENS / name).spec)).load(init=False)
    compiled.load_state_dict(net.state_dict())
    to_hf(compiled, tmp_path / "b", family=family)
    for folder in (tmp_path / "a", tmp_path / "b"):
        peer = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        with torch.no_grad():
            torch.testing.assert_close(peer(golden["input_ids"]).logits, golden["logits"], rtol=2e-4, atol=2e-4)


def test_a_spec_of_other_names_is_found_in_a_family(tmp_path):
    net = hybridc.compile(LLAMA).load(seed=3)
    to_hf(net, tmp_path / "llama", family="llama")
    config = json.loads((tmp_path / "llama" / "config.json").read_text())
    assert config["num_key_value_heads"] == 2 and config["pad_token_id"] is None
    ids = torch.randint(40, (2, 9))
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "llama").eval()(ids).logits
        torch.testing.assert_close(net(ids).logits, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("edit", "family", "code"),
    [
        (("", ""), "", "HYB501"),  # it is called `mine`
        (("", ""), "lama", "HYB501"),
        (("swiglu(24)", "swiglu(24) >> scale(0.5)"), "llama", "HYB514"),
        (("swiglu(24)", "linear(16)"), "llama", "HYB514"),
        (("heads=4", "window=7, heads=4"), "llama", "HYB514"),
        (("heads=4", "sinks=true, heads=4"), "qwen2", "HYB514"),
        (("", ""), "mamba2", "HYB514"),
        (("swiglu(24)", "mlp(24, act=gelu_tanh)"), "llama", "HYB514"),
    ],
)
def test_what_a_family_cannot_express_is_said(edit, family, code, tmp_path):
    net = hybridc.compile(LLAMA.replace(*edit)).load()
    assert codes(lambda: to_hf(net, tmp_path / "out", family=family)) == [code]
    assert not (tmp_path / "out").exists()


def test_large_models_are_cut_into_files(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "SHARD_BYTES", 8000)
    net = hybridc.compile(LLAMA).load(seed=1)
    to_hf(net, tmp_path / "m", family="llama")
    index = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())
    files = sorted(p.name for p in (tmp_path / "m").glob("*.safetensors"))
    assert len(files) > 2 and set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == 4 * sum(p.numel() for p in net.parameters())
    again = hybridc.from_hf(tmp_path / "m")
    ids = torch.randint(40, (1, 7))
    assert torch.equal(again(ids).logits, net(ids).logits)


def test_bf16_keeps_what_is_fp32(tmp_path):
    net = hybridc.from_hf(GOLDENS / "falcon_h1_biases").to(torch.bfloat16)
    to_hf(net, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    assert config["dtype"] == "bfloat16"
    assert {n.rpartition(".")[2] for n, t in tensors.items() if t.dtype == torch.float32} == {"A_log", "D", "dt_bias"}


def test_the_command(tmp_path, capsys):
    from hybridc.cli import app
    from hybridc.console import Stop

    def run(*words):
        try:
            app([str(w) for w in words], standalone_mode=False)
        except Stop as stop:
            assert not stop.args or stop.args[0] == 0

    spec = tmp_path / "mine.hyb"
    spec.write_text(LLAMA)
    net = hybridc.compile(spec).load(seed=9)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    run("export", "hf", spec, tmp_path / "a", "--family", "llama", "--weights", tmp_path / "w.safetensors")
    run("compile", spec, "-o", tmp_path / "package")
    run(
        "export",
        "hf",
        tmp_path / "package",
        tmp_path / "b",
        "--family",
        "llama",
        "--weights",
        tmp_path / "w.safetensors",
    )
    (tmp_path / "a" / "tokenizer.json").write_text("{}")
    run("export", "hf", tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "c" / "tokenizer.json").read_text() == "{}"
    first = load_file(tmp_path / "a" / "model.safetensors")
    for folder in ("b", "c"):
        other = load_file(tmp_path / folder / "model.safetensors")
        assert set(other) == set(first) and all(torch.equal(first[n], other[n]) for n in first)


def test_a_net_without_a_spec(tmp_path):
    assert codes(lambda: to_hf(torch.nn.Linear(2, 2), tmp_path / "m")) == ["HYB513"]


def test_a_folder_that_is_taken(tmp_path):
    (tmp_path / "file").write_text("x")
    assert codes(lambda: to_hf(hybridc.compile(LLAMA).load(), tmp_path, family="llama")) == ["HYB403"]


def test_a_bf16_checkpoint_is_exported_in_bf16(tmp_path):
    """Routers are fp32 in the net, and so in the file; their numbers are the file's."""
    source = GOLDENS / "qwen3_moe_aux"
    tensors = {n: t.bfloat16() for n, t in load_file(source / "model.safetensors").items()}
    (tmp_path / "bf16").mkdir()
    save_file(tensors, tmp_path / "bf16" / "model.safetensors")
    (tmp_path / "bf16" / "config.json").write_text((source / "config.json").read_text())
    export.export_folder(tmp_path / "bf16", tmp_path / "out")
    back = load_file(tmp_path / "out" / "model.safetensors")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert back.keys() == tensors.keys()
    for name, tensor in back.items():
        assert tensor.dtype == (torch.float32 if name.endswith("mlp.gate.weight") else torch.bfloat16), name
        assert torch.equal(tensor.float(), tensors[name].float())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "auto"])
def test_a_checkpoint_is_loaded_in_a_dtype(dtype):
    net = hybridc.from_hf(GOLDENS / "jamba_dense", dtype=dtype)
    wanted = getattr(torch, "float32" if dtype == "auto" else dtype)
    kept = {"A_log", "D", "dt_proj.bias"}
    for name, p in net.named_parameters():
        assert p.dtype == (torch.float32 if any(name.endswith(k) for k in kept) else wanted), name
    wide = hybridc.from_hf(GOLDENS / "jamba_dense")
    assert all(torch.equal(p, q.to(p.dtype)) for p, q in zip(net.parameters(), wide.parameters(), strict=True))
    with pytest.raises(ValueError, match="choose one of"):
        hybridc.from_hf(GOLDENS / "jamba_dense", dtype="int8")


def test_a_family_that_lacks_something_is_said_to(tmp_path):
    """Not what its config would do wrong where what it cannot say is left out."""
    phi = hybridc.compile(read(GOLDENS / "phi3_partial_window").spec).load()
    for family in ("llama", "qwen2"):
        assert codes(lambda family=family: to_hf(phi, tmp_path / "x", family=family)) == ["HYB514"]
    jamba = hybridc.compile(read(GOLDENS / "jamba_dense").spec).load()
    with pytest.raises(DiagnosticError) as caught:
        to_hf(jamba, tmp_path / "y", family="deepseek_v3")
    assert "its attention has no `kv_rank`" in caught.value.diagnostics[0].label
