"""Tokenizers out of metadata: the same ids as the tokenizer that the metadata was written down from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS, convert_gguf_tokenizer

from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.gguf.tokenizer import ends, tokenizer_config, tokenizer_json

TEXTS = [
    "The cat sat on the mat.",
    "It's 12345 o'clock, isn't it?  Two  spaces\n\n\tand a tab",
    "übergroße Straße — 你好，世界 🙂 ½ ٣",
    "def f(x):\r\n    return x**2 + 1.5e-3  # don't",
    "a",
    "",
    "x <end> y<end>",
    "HELLO'S World's  ",
]


def trained(before: Any) -> Tokenizer:
    """A byte-level tokenizer of 400 tokens, cut before the merges as given."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = before
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<start>", "<end>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    return tokenizer


def metadata(tokenizer: Tokenizer, pre: str | None, **more: Any) -> dict[str, Any]:
    """What a converter writes down of a byte-level tokenizer."""
    state = json.loads(tokenizer.to_str())
    vocab = state["model"]["vocab"]
    special = {t["content"] for t in state["added_tokens"]}
    tokens = sorted(vocab, key=vocab.__getitem__)
    found = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t in special else 1 for t in tokens],
        "tokenizer.ggml.merges": [" ".join(m) for m in state["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": vocab["<start>"],
        "tokenizer.ggml.eos_token_id": vocab["<end>"],
        **{f"tokenizer.ggml.{k}": v for k, v in more.items()},
    }
    return {k: v for k, v in found.items() if v is not None}


def built(entries: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer_json(entries)))


def byte_level(*first: Any, cut: bool) -> Any:
    return pre_tokenizers.Sequence([*first, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut)])


@pytest.mark.parametrize(
    ("pre", "before"),
    [
        ("gpt-2", byte_level(cut=True)),
        ("smollm", byte_level(pre_tokenizers.Digits(individual_digits=True), cut=True)),
        ("starcoder", byte_level(pre_tokenizers.Digits(individual_digits=True), cut=True)),
        *(
            (name, byte_level(pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[name]), "isolated"), cut=False))
            for name in ("llama-bpe", "qwen2", "gpt-4o", "tekken")
        ),
    ],
)
def test_byte_level(pre: str, before: Any) -> None:
    source = trained(before)
    again = built(metadata(source, pre, add_bos_token=False))
    for text in TEXTS:
        assert again.encode(text).ids == source.encode(text).ids, text
        assert again.decode(again.encode(text).ids) == source.decode(source.encode(text).ids)


def test_no_pattern_is_the_default() -> None:
    """Punctuation alone, digits in threes, and GPT-2's words between them."""
    again = built(metadata(trained(byte_level(cut=True)), None))
    pieces = [text for text, _ in again.pre_tokenizer.pre_tokenize_str("Is it 1234567? It's $5.")]
    assert pieces == ["Is", "Ġit", "Ġ", "123", "456", "7", "?", "ĠIt", "'", "s", "Ġ", "$", "5", "."]


def test_words_that_are_tokens_are_taken_whole_where_the_model_does() -> None:
    entries = metadata(trained(byte_level(cut=True)), "llama-bpe")
    entries["tokenizer.ggml.tokens"] = [*entries["tokenizer.ggml.tokens"], "zqj"]
    entries["tokenizer.ggml.token_type"] = [*entries["tokenizer.ggml.token_type"], 1]
    last = len(entries["tokenizer.ggml.tokens"]) - 1
    assert built(entries).encode("zqj", add_special_tokens=False).ids == [last]
    assert len(built(entries | {"tokenizer.ggml.pre": "qwen2"}).encode("zqj").ids) == 3


@pytest.mark.parametrize(
    ("pre", "flags", "around"),
    [
        ("gpt-2", {}, ([], [])),
        ("llama-bpe", {}, ([0], [])),
        ("llama-bpe", {"add_bos_token": False}, ([], [])),
        ("smollm", {"add_bos_token": True, "add_eos_token": True}, ([0], [1])),
        ("smollm", {"add_bos_token": True, "bos_token_id": 5000}, ([], [])),
    ],
)
def test_what_stands_around_a_text(pre: str, flags: dict[str, Any], around: tuple[list[int], list[int]]) -> None:
    tokenizer = built(metadata(trained(byte_level(cut=True)), pre, **flags))
    alone = tokenizer.encode("the mat", add_special_tokens=False).ids
    assert tokenizer.encode("the mat").ids == around[0] + alone + around[1]


def test_config_and_ends() -> None:
    entries = metadata(trained(byte_level(cut=True)), "gpt-2", eot_token_id=0, unknown_token_id=99999)
    assert ends(entries) == [0, 1]
    found = tokenizer_config(entries | {"tokenizer.chat_template": "{{ x }}"})
    assert (found["bos_token"], found["eos_token"], found["chat_template"]) == ("<start>", "<end>", "{{ x }}")
    assert "unk_token" not in found


# --- SentencePiece ----------------------------------------------------------------------------------------------------

WORDS = ["the", "cat", "sat", "on", "mat", "it's", "two", "spaces", "and", "a", "tab", "hello", "world", "x", "y"]
BYTES = [f"<0x{n:02X}>" for n in range(256)]


def sentencepiece(**more: Any) -> dict[str, Any]:
    """Metadata of a vocabulary whose pieces are all beginnings of some words, longer ones with better scores."""
    pieces: dict[str, float] = {}
    for word in WORDS:
        for text in (word, "\u2581" + word):
            for end in range(2, len(text) + 1):
                pieces.setdefault(text[:end], -float(len(pieces)) / 8 + end)
    letters = sorted(set("".join(WORDS) + "\u2581.,'"))
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *pieces, *letters]
    scores = [0.0] * (3 + 256) + list(pieces.values()) + [-1000.0 - i for i in range(len(letters))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{k}": v for k, v in more.items()},
    }


def joined(text: str, entries: dict[str, Any]) -> list[int]:
    """SentencePiece's BPE as it is described: join the neighbours that make the piece of the best score, until none do;
    what is no piece then is its bytes."""
    tokens: Sequence[str] = entries["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens, entries["tokenizer.ggml.scores"], strict=True))
    ids = {t: i for i, t in enumerate(tokens)}
    parts = list(("\u2581" + text).replace(" ", "\u2581"))
    while True:
        pairs = [(scores[a + b], -n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not pairs:
            break
        n = -max(pairs)[1]
        parts[n : n + 2] = ["".join(parts[n : n + 2])]
    return [i for p in parts for i in ([ids[p]] if p in ids else [ids[BYTES[b]] for b in p.encode()])]


SENTENCES = [
    "the cat sat on the mat",
    "it's two  spaces, and a tab.",
    "hello world",
    "übel 你好 \n",
    " in front",
    "xyz thethe",
]


@pytest.mark.parametrize("text", SENTENCES)
def test_sentencepiece(text: str) -> None:
    entries = sentencepiece()
    tokenizer = built(entries)
    assert tokenizer.encode(text).ids == [1, *joined(text, entries)]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_sentencepiece_as_transformers_builds_it() -> None:
    entries = sentencepiece()
    names = {"tokens": "tokens", "scores": "scores", "token_type": "token_type", "tokenizer_type": "model"}
    theirs, _ = convert_gguf_tokenizer("llama", {k: entries[f"tokenizer.ggml.{v}"] for k, v in names.items()})
    ours = built(entries)
    for text in SENTENCES[:4]:
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text, add_special_tokens=False).ids


def test_sentencepiece_without_a_space_in_front() -> None:
    tokenizer = built(sentencepiece(add_space_prefix=False, add_bos_token=False))
    tokens = sentencepiece()["tokenizer.ggml.tokens"]
    assert [tokens[i] for i in tokenizer.encode("the cat").ids] == ["the", "\u2581cat"]
    assert tokenizer.decode(tokenizer.encode("the cat").ids) == "the cat"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"model": "bert"}, "'bert'"),
        ({"pre": "my-own"}, "'my-own'"),
        ({"pre": ["gpt-2"]}, "['gpt-2']"),
        ({"tokens": None}, "tokens"),
        ({"tokens": [1, 2]}, "tokens"),
        ({"tokens": ["a", "a"], "token_type": [1, 1], "merges": []}, "'a' stands twice"),
        ({"token_type": [1]}, "token_type"),
        ({"merges": None}, "merges"),
        ({"merges": ["a b c"]}, "'a b c'"),
        ({"merges": ["nope nope"]}, "'nope nope'"),
        ({"model": "llama"}, "score"),
    ],
)
def test_refused(change: dict[str, Any], cause: str) -> None:
    entries = metadata(trained(byte_level(cut=True)), "gpt-2")
    entries |= {f"tokenizer.ggml.{k}": v for k, v in change.items()}
    with pytest.raises(DiagnosticError) as error:
        tokenizer_json({k: v for k, v in entries.items() if v is not None})
    (found,) = error.value.diagnostics
    assert found.code == "HYB521" and cause in found.label
