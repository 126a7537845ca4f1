"""What a prompt starts with and what ends a sample, by the files beside a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from hybridc.console import Stop
from hybridc.prompting import continuation
from hybridc.tokens import ByteTokens, LibraryTokens, end_ids, tokens_for


def folder(path: Path, frame: Any = None, config: dict[str, Any] | None = None) -> Path:
    vocab = {"<s>": 0, "</s>": 1, "\u2581the": 2, "\u2581cat": 3, "<unk>": 4}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if frame:
        tokenizer.post_processor = TemplateProcessing(single=frame, special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer.save(str(path / "tokenizer.json"))
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("frame", "config", "front"),
    [
        (None, None, []),
        ("<s> $A", None, [0]),
        ("<s> $A </s>", None, [0]),
        ("$A </s>", None, []),
        (None, {"add_bos_token": True, "bos_token": "<s>"}, []),
        ("<s> $A", {"add_bos_token": False, "bos_token": "<s>"}, [0]),
    ],
)
def test_what_a_prompt_starts_with(
    tmp_path: Path, frame: str | None, config: dict[str, Any] | None, front: list[int]
) -> None:
    tokens = tokens_for(folder(tmp_path, frame, config), 5)
    assert tokens.encode("the cat") == [*front, 2, 3]
    assert tokens.encode("") == front
    assert tokens.pieces("the cat") == [2, 3]
    # transformers adds the end as well; a model that goes on has no use for it
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)("the cat").input_ids
    assert [i for i in theirs if i != 1] == [*front, 2, 3]


@pytest.mark.parametrize(
    ("files", "ids"),
    [
        ({}, []),
        ({"config.json": {"eos_token_id": 3}}, [3]),
        ({"config.json": {"eos_token_id": None}}, []),
        ({"config.json": {"eos_token_id": [3, 4]}}, [3, 4]),
        ({"config.json": {"eos_token_id": 3}, "generation_config.json": {"eos_token_id": [5, 6]}}, [5, 6]),
        ({"config.json": {"eos_token_id": 3}, "generation_config.json": {}}, [3]),
        ({"config.json": {"eos_token_id": "x"}}, []),
        ({"config.json": []}, []),
    ],
)
def test_what_ends_a_sample(tmp_path: Path, files: dict[str, Any], ids: list[int]) -> None:
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    assert end_ids(tmp_path) == ids
    (tmp_path / "spec.hyb").write_text("")
    assert end_ids(tmp_path / "spec.hyb") == []


def test_a_broken_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Stop, match="not JSON"):
        end_ids(tmp_path)


def test_a_continuation_keeps_its_space(tmp_path: Path) -> None:
    tokens = LibraryTokens.from_folder(folder(tmp_path))
    assert tokens.decode([3]) == "cat"
    assert continuation(tokens, [2], [3]) == " cat"
    assert continuation(tokens, [], [3]) == "cat"


def test_bytes() -> None:
    assert ByteTokens().encode("ü") == ByteTokens().pieces("ü") == [0xC3, 0xBC]
    assert continuation(ByteTokens(), [0xC3, 0xBC], [0xC3, 0xA4]) == "ä"
    assert continuation(ByteTokens(), [0xC3], [0xBC]) == "\ufffd"
