"""GGUF files as nets and as folders, held against transformers' models with the same dequantised weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.document import print_spec
from tests.frontend.gguf.made import model, write

IDS = torch.arange(24).reshape(2, 12) * 5 % 64


def logits(net: Any) -> torch.Tensor:
    with torch.no_grad():
        return net(IDS).logits


def same(net: Any, theirs: Any) -> None:
    torch.testing.assert_close(logits(net), logits(theirs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1], ids=lambda k: k.name
)
def test_formats(tmp_path: Path, kind: Kind) -> None:
    theirs = model()
    write(tmp_path / "m.gguf", theirs, kind)
    net = hybridc.from_gguf(tmp_path / "m.gguf")
    same(net, theirs)
    public, state = hybridc.to_hf_state_dict(net), theirs.state_dict()
    assert set(public) == set(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in public.items())


@pytest.mark.parametrize("kind", [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K], ids=lambda k: k.name)
def test_formats_in_blocks_of_256(tmp_path: Path, kind: Kind) -> None:
    theirs = model(hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    write(tmp_path / "m.gguf", theirs, kind)
    same(hybridc.from_gguf(tmp_path / "m.gguf"), theirs)


ROPE = {"rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("settings", "entries"),
    [
        ({"tie_word_embeddings": True}, {}),
        ({"num_key_value_heads": 4, "rms_norm_eps": 1e-6}, {}),
        ({"num_key_value_heads": 1}, {"llama.vocab_size": None}),
        ({"head_dim": 16}, {"llama.attention.key_length": 16, "llama.attention.value_length": 16}),
        ({"attention_bias": True, "mlp_bias": True}, {}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}, {"llama.rope.dimension_count": 8}),
        (
            {"rope_parameters": {**ROPE, "rope_type": "linear", "factor": 4.0}},
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        ),
        ({"rope_parameters": {**ROPE, "rope_type": "linear", "factor": 4.0}}, {"llama.rope.scale_linear": 4.0}),
        ({}, {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}),
        (
            {
                "rope_parameters": {
                    **ROPE,
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32,
                    "beta_fast": 16.0,
                }
            },
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 32,
                "llama.rope.scaling.yarn_beta_fast": 16.0,
                "llama.rope.scaling.finetuned": True,
            },
        ),
        ({"num_local_experts": 4, "num_experts_per_tok": 2}, {}),
        (
            {"num_local_experts": 3, "num_experts_per_tok": 1, "tie_word_embeddings": True},
            {"llama.expert_weights_scale": 1.0},
        ),
        ({}, {"llama.attention.head_count_kv": [2, 2], "llama.feed_forward_length": [64, 64]}),
    ],
)  # fmt: skip
def test_settings(tmp_path: Path, settings: dict[str, Any], entries: dict[str, Any]) -> None:
    theirs = model(**settings)
    write(tmp_path / "m.gguf", theirs, Kind.F16, **entries)
    same(hybridc.from_gguf(tmp_path / "m.gguf"), theirs)
    hybridc.gguf_to_hf(tmp_path / "m.gguf", tmp_path / "out")
    same(hybridc.from_hf(tmp_path / "out"), theirs)
    same(AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval(), theirs)


def test_the_scaling_of_llama3_is_a_tensor(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    theirs = model(head_dim=64, rope_parameters=rope)
    plain = 500000.0 ** (-torch.arange(0, 64, 2).double() / 64)
    divisors = (plain / theirs.model.rotary_emb.inv_freq.double()).float().numpy()
    write(tmp_path / "m.gguf", theirs, **{"rope_freqs.weight": divisors, "llama.attention.key_length": 64})
    net = hybridc.from_gguf(tmp_path / "m.gguf")
    far = torch.arange(64)[None] * 40  # positions where the scaling shows
    with torch.no_grad():
        ours = net(IDS[:1, :8], positions=far[:, :8]).logits
        want = theirs(IDS[:1, :8], position_ids=far[:, :8]).logits
    torch.testing.assert_close(ours, want, rtol=1e-4, atol=1e-4)
    assert "factor=8.0" in print_spec(hybridc.import_gguf(tmp_path / "m.gguf"))


def test_the_folder_says_what_transformers_reads_in_the_file(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", model(), Kind.Q8_0, **{"llama.rope.dimension_count": 8})
    hybridc.gguf_to_hf(tmp_path / "m.gguf", tmp_path / "out")
    ours = json.loads((tmp_path / "out" / "config.json").read_text())
    theirs = load_gguf_checkpoint(str(tmp_path / "m.gguf"))["config"]
    shared = set(ours) & set(theirs)
    assert len(shared) > 10
    for name in shared:
        assert ours[name] == pytest.approx(theirs[name], rel=1e-6) or ours[name] == theirs[name], name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtypes_of_the_folder(tmp_path: Path, dtype: str) -> None:
    theirs = model()
    write(tmp_path / "m.gguf", theirs, Kind.Q4_0)
    hybridc.gguf_to_hf(tmp_path / "m.gguf", tmp_path / "out", dtype=dtype)
    stored = load_file(tmp_path / "out" / "model.safetensors")
    state = theirs.state_dict()
    assert set(stored) == set(state)
    assert all(torch.equal(t, state[n].to(getattr(torch, dtype))) for n, t in stored.items())
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == dtype
    with pytest.raises(ValueError, match="float8"):
        hybridc.gguf_to_hf(tmp_path / "m.gguf", tmp_path / "other", dtype="float8")


def test_only_an_empty_folder_is_written(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", model())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("kept")
    for target in (tmp_path / "full", tmp_path / "full" / "mine"):
        with pytest.raises(DiagnosticError) as error:
            hybridc.gguf_to_hf(tmp_path / "m.gguf", target)
        assert error.value.diagnostics[0].code == "HYB403"
    assert (tmp_path / "full" / "mine").read_text() == "kept"
    (tmp_path / "empty").mkdir()
    assert hybridc.gguf_to_hf(tmp_path / "m.gguf", tmp_path / "empty") == tmp_path / "empty"
    assert {p.name for p in (tmp_path / "empty").iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
    }
    assert {p.name for p in tmp_path.iterdir()} == {"m.gguf", "full", "empty"}


def test_nothing_is_left_of_a_folder_that_failed(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", model())
    whole = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(whole[:-64])
    with pytest.raises(DiagnosticError):
        hybridc.gguf_to_hf(tmp_path / "m.gguf", tmp_path / "out")
    write(tmp_path / "m.gguf", model(), **{"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["a"] * 64})
    with pytest.raises(DiagnosticError) as error:
        hybridc.gguf_to_hf(tmp_path / "m.gguf", tmp_path / "out")
    assert error.value.diagnostics[0].code == "HYB521"
    assert os.listdir(tmp_path) == ["m.gguf"]


def test_tensors_that_do_not_fit_are_listed_at_once(tmp_path: Path) -> None:
    theirs = model(num_hidden_layers=1)
    write(tmp_path / "m.gguf", theirs, **{"llama.block_count": 3, "llama.vocab_size": 60, "x.weight": np.ones(4, "f4")})
    with pytest.raises(DiagnosticError) as error:
        hybridc.from_gguf(tmp_path / "m.gguf")
    found = {d.code + d.label.partition(":")[0]: d.label for d in error.value.diagnostics}
    assert list(found) == [
        "HYB51018 tensors are missing from the file",
        "HYB5112 tensors are of another shape",
        "HYB5111 tensor is in the file, but not in the model",
    ]
    labels = list(found.values())
    assert "blk.{1-2}.attn_q.weight" in labels[0]
    assert "token_embd.weight [64, 32], wanted [60, 32]" in labels[1]
    assert "x.weight" in labels[2]


def test_formats_that_cannot_be_dequantised_are_named(tmp_path: Path) -> None:
    theirs = model(num_hidden_layers=1)
    write(tmp_path / "m.gguf", theirs, Kind.F32)
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    at = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    assert data[at : at + 4] == bytes(4)
    data[at : at + 4] = int(Kind.I32).to_bytes(4, "little")
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(DiagnosticError) as error:
        hybridc.from_gguf(tmp_path / "m.gguf")
    (found,) = error.value.diagnostics
    assert found.code == "HYB522" and "token_embd.weight (I32)" in found.label
