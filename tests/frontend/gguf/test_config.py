"""Metadata: what is honoured, and that the rest is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.gguf.config import config_of
from hybridc.frontend.gguf.file import GgufFile, TensorInfo

BASE: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06,
    "tokenizer.ggml.tokens": ["a"] * 50,
}
EMBEDDING = TensorInfo("token_embd.weight", (50, 64), "F32", 0, 0)


def config(**more: Any) -> dict[str, Any]:
    entries = BASE | more
    metadata = {k: v for k, v in entries.items() if v is not None}
    return config_of(GgufFile(Path("m.gguf"), metadata, {EMBEDDING.name: EMBEDDING}))


def refused(**more: Any) -> list[tuple[str, str]]:
    with pytest.raises(DiagnosticError) as error:
        config(**more)
    return [(d.code, d.label) for d in error.value.diagnostics]


def test_defaults_are_those_of_the_format() -> None:
    found = config()
    assert found["num_key_value_heads"] == 4 and found["head_dim"] == 16 and found["vocab_size"] == 50
    assert found["rope_theta"] == 10000.0 and found["rope_scaling"] is None
    assert found["rms_norm_eps"] == 1e-5, "as the config that the file was made of had it"
    assert found["tie_word_embeddings"] is True and found["attention_bias"] is False
    assert found["bos_token_id"] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("llama.attention.scale", 0.1),
        ("llama.attention.causal", False),
        ("llama.attention.clamp_kqv", 8.0),
        ("llama.attention.value_length", 32),
        ("llama.attention.sliding_window", 512),
        ("llama.attention.head_count_kv", [4, 2]),
        ("llama.attention.layer_norm_rms_epsilon", 0.0),
        ("llama.attention.layer_norm_rms_epsilon", float("nan")),
        ("llama.rope.dimension_count", 8),
        ("llama.rope.freq_base", float("inf")),
        ("llama.rope.scaling.type", "longrope"),
        ("llama.rope.scaling.type", 3),
        ("llama.rope.scaling.attn_factor", 1.5),
        ("llama.rope.scaling.yarn_log_multiplier", 0.1),
        ("llama.embedding_scale", 12.0),
        ("llama.residual_scale", 0.22),
        ("llama.logit_scale", 8.0),
        ("llama.final_logit_softcapping", 30.0),
        ("llama.use_parallel_residual", True),
        ("llama.pooling_type", 1),
        ("llama.expert_count", -1),
        ("llama.block_count", 0),
        ("llama.block_count", "two"),
        ("llama.feed_forward_length", [128, 64]),
        ("llama.embedding_length", 1 << 60),
    ],
)
def test_values_that_cannot_be_honoured(name: str, value: Any) -> None:
    found = refused(**{name: value})
    assert any(code == "HYB503" and name in label for code, label in found), found


@pytest.mark.parametrize(
    "name",
    [
        "llama.context_length",
        "llama.embedding_length",
        "llama.block_count",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ],
)
def test_entries_that_every_file_has(name: str) -> None:
    assert any(code == "HYB503" and name in label for code, label in refused(**{name: None}))


def test_an_unknown_entry_of_the_architecture_is_refused() -> None:
    assert refused(**{"llama.new_idea": 1}) == [("HYB502", "the field `llama.new_idea` is not known to `llama`")]
    assert config(**{"general.new_idea": 1, "quantize.imatrix.file": "x"})


@pytest.mark.parametrize(
    ("entries", "code", "cause"),
    [
        ({"general.architecture": "qwen2"}, "HYB501", "'qwen2'"),
        ({"general.architecture": None}, "HYB501", "None"),
        ({"general.architecture": ["llama"]}, "HYB501", "['llama']"),
        ({"general.type": "adapter"}, "HYB503", "'adapter'"),
        ({"split.count": 3}, "HYB503", "one of 3 parts"),
    ],
)
def test_files_of_another_kind(entries: dict[str, Any], code: str, cause: str) -> None:
    (found,) = refused(**entries)
    assert found[0] == code and cause in found[1]


def test_experts_without_end() -> None:
    found = refused(**{"llama.block_count": 10_000, "llama.expert_count": 10_000})
    assert any("llama.expert_count" in label for _, label in found)


def test_values_without_an_effect_pass() -> None:
    assert (
        config(
            **{
                "llama.attention.sliding_window": 4096,
                "llama.expert_count": 0,
                "llama.expert_used_count": 0,
                "llama.rope.scaling.attn_factor": 1.0,
                "llama.tensor_data_layout": "Meta AI original pth",
            }
        )
        == config()
    )


def test_ids_outside_of_the_vocabulary_are_none() -> None:
    found = config(**{"tokenizer.ggml.bos_token_id": 49, "tokenizer.ggml.eos_token_id": 50})
    assert (found["bos_token_id"], found["eos_token_id"]) == (49, None)
