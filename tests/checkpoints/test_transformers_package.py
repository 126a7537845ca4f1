"""`hybridc compile --as transformers`, as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, FalconH1Config, FalconH1ForCausalLM, GenerationConfig

import hybridc
from hybridc import cli
from tests.docs.markdown import ROOT
from tests.runtime import zoo

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `hybridc WORDS` in an empty folder; gives (status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo.hyb").write_text(zoo.SPEC, encoding="utf-8")

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["hybridc", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (end.value.code or 0, *capfd.readouterr())

    return call


def load(folder: Path, **options: object) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **options)


def test_initial_weights_of_a_seed(run: Run) -> None:
    status, _, err = run("compile", "zoo.hyb", "--as", "transformers", "--seed", 5, "-o", "zoo")
    assert status == 0 and "modeling_zoo.py" in err and "model.safetensors" in err
    start = hybridc.compile(zoo.SPEC).load(seed=5)
    model = load(Path("zoo"))
    assert all(torch.equal(p, start.get_parameter(n)) for n, p in model.model.named_parameters())
    first = {p.name: p.read_bytes() for p in Path("zoo").iterdir()}
    assert run("compile", "zoo.hyb", "--as", "transformers", "--seed", 5, "-o", "zoo")[0] == 0
    assert {p.name: p.read_bytes() for p in Path("zoo").iterdir()} == first


def test_no_weights_unless_asked_for(run: Run) -> None:
    assert run("compile", "zoo.hyb", "--as", "transformers", "-o", "zoo")[0] == 0
    assert not list(Path("zoo").glob("*.safetensors"))


def test_weights_of_a_file_and_of_a_trained_model(run: Run) -> None:
    """By the net's own names, and by those that save_pretrained writes."""
    net = zoo.loud(hybridc.compile(zoo.SPEC).load(seed=5))
    save_file(dict(net.named_parameters()), "own.safetensors")
    assert run("compile", "zoo.hyb", "--as", "transformers", "--weights", "own.safetensors", "-o", "a")[0] == 0
    load(Path("a")).save_pretrained("saved")
    assert run("compile", "zoo.hyb", "--as", "transformers", "--weights", "saved/model.safetensors", "-o", "b")[0] == 0
    model = load(Path("b"))
    assert all(torch.equal(p, net.get_parameter(n)) for n, p in model.model.named_parameters())
    expected = hybridc.generate(net, torch.tensor([[1, 2, 3]]), max_new_tokens=6)[0]
    for words in (("b",), ("saved",), ("zoo.hyb", "--weights", "saved/model.safetensors")):
        status, out, _ = run("generate", *words, "--ids", "1,2,3", "--max-new-tokens", 6)
        assert status == 0 and out.strip() == ",".join(map(str, expected))


def test_a_package_becomes_a_transformers_model(run: Run) -> None:
    assert run("compile", "zoo.hyb", "-o", "plain")[0] == 0
    assert run("compile", "plain", "--as", "transformers", "--seed", 1, "-o", "model")[0] == 0
    assert run("compile", "model", "--as", "transformers", "-o", "again")[0] == 0
    assert load_file("model/model.safetensors").keys() == load_file("again/model.safetensors").keys()


def test_a_public_checkpoint(run: Run) -> None:
    """Logits, text with beams and padding, end of text and tokenizer of the family's own class."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = FalconH1Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    theirs = FalconH1ForCausalLM(config).eval()
    theirs.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=[2, 9], pad_token_id=0)
    theirs.save_pretrained("public")
    inner = Tokenizer(models.WordLevel({"<s>": 1, "a": 3, "b": 4}, unk_token="a"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>").save_pretrained("public")
    assert run("compile", "public", "--as", "transformers", "-o", "ours")[0] == 0
    ours = load(Path("ours"))
    ids = torch.randint(3, 64, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids).logits, theirs(ids).logits, rtol=1e-4, atol=1e-5)
    options = {"max_new_tokens": 8, "num_beams": 3, "do_sample": False}
    assert ours.generate(ids[:1], **options).tolist() == theirs.generate(ids[:1], **options).tolist()
    assert ours.generation_config.eos_token_id == [2, 9] and ours.config.eos_token_id == 2
    assert AutoTokenizer.from_pretrained("ours", trust_remote_code=True)("b a")["input_ids"] == [4, 3]
    status, out, _ = run("generate", "ours", "--ids", "5,6", "--max-new-tokens", 3)
    assert status == 0 and out == run("generate", "public", "--ids", "5,6", "--max-new-tokens", 3)[1]


def test_mistakes(run: Run) -> None:
    status, _, err = run("compile", "zoo.hyb", "-o", "zoo", "--seed", 1)
    assert status == 2 and "--as transformers" in err
    words = ("compile", "zoo.hyb", "--as", "transformers", "-o", "zoo")
    status, _, err = run(*words, "--seed", 1, "--weights", "own.safetensors")
    assert status == 2 and "give one of them" in err
    folder = ROOT / "tests" / "frontend" / "hf" / "goldens" / "llama_yarn"
    for option in (("--seed", 1), ("--weights", folder / "model.safetensors")):
        status, _, err = run("compile", folder, "--as", "transformers", "-o", "zoo", *option)
        assert status == 2 and "brings its own weights" in err
    status, _, err = run(*words, "--weights", "none.safetensors")
    assert status == 2 and "cannot read" in err
    assert run("compile", "none.hyb", "--as", "transformers", "-o", "zoo")[0] == 2
    assert not Path("zoo").exists()
    assert run("compile", "zoo.hyb", "-o", "plain")[0] == 0
    status, _, err = run("compile", "plain", "--as", "transformers", "-o", "zoo", "--set", "dim=64")
    assert status == 2 and "--set" in err
    Path("model.gguf").write_bytes(b"GGUF" + bytes(60))
    status, _, err = run("compile", "model.gguf", "--as", "transformers", "-o", "zoo")
    assert status == 2 and "import gguf" in err
    assert json.loads(Path("plain/manifest.json").read_text())["model"] == "zoo"
