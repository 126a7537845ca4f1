"""The tokenizer of a GGUF file as the files of a public checkpoint: tokenizer.json and tokenizer_config.json.

Two kinds of vocabulary are read: byte-level BPE (`gpt2`), where the file names the pattern that cuts text before the
merges, and SentencePiece's (`llama`), where merges follow from the scores. Which pattern a name stands for, and
whether a text starts with bos where the file does not say, is what llama.cpp does with the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, did_you_mean
from hybridc.frontend.gguf.config import token_id
from hybridc.frontend.gguf.file import shown

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Kinds of tokens."""

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = _GPT4O.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")

_PATTERNS = {_LLAMA3: "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe",
             _QWEN2: "qwen2 deepseek-r1-qwen kormo megrez stablelm2",
             _GPT4O: "gpt-4o llama4 kanana2",
             _TEKKEN: "tekken"}  # fmt: skip
"""Patterns that cut a text into words, as the models' own tokenizer.json have them, and names that stand for them."""

_GPT2 = "gpt-2 phi-2 gigachat mellum mpt olmo jais trillion granite-docling exaone4".split()  # noqa: SIM905
"""Names that stand for GPT-2's pattern, which the library has built in."""

_DIGITS = "smollm starcoder refact command-r codeshell exaone minerva-7b".split()  # noqa: SIM905
"""Names that stand for GPT-2's pattern behind a cut around every digit."""

_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
"""Cuts, one after the other, of files that name no pattern."""

_WHOLE_WORDS_FIRST = frozenset("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 tekken".split())  # noqa: SIM905
"""Names of vocabularies where a word that is a token is taken whole; such texts start with bos, unless the file says
otherwise."""


def has_tokenizer(metadata: Mapping[str, Any]) -> bool:
    """Whether the file has a vocabulary at all."""
    return metadata.get("tokenizer.ggml.model", "none") not in ("none", "no_vocab")


def tokenizer_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The object that a tokenizer.json holds. Raises DiagnosticError (HYB521) for a tokenizer that is not read."""
    kind, tokens = metadata.get("tokenizer.ggml.model"), _texts(metadata, "tokens")
    types = _integers(metadata, "token_type", len(tokens))
    added = [
        {
            "id": i,
            "content": tokens[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": type == CONTROL or (kind == "llama" and type == UNKNOWN),
        }
        for i, type in enumerate(types)
        if tokens[i] and (type in (CONTROL, USER_DEFINED) or (kind == "llama" and type == UNKNOWN))
    ]
    if kind == "gpt2":
        parts = _byte_level(metadata, tokens)
    elif kind == "llama":
        parts = _sentencepiece(metadata, tokens)
    else:
        raise _refused(f"the vocabulary is of the kind {shown(kind)}", "`gpt2` and `llama` are read")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **parts,
        "post_processor": _frame(metadata, tokens),
    }


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The object that a tokenizer_config.json holds."""
    tokens = _texts(metadata, "tokens")
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: token_id(metadata, own) for name, own in named.items()}
    template = metadata.get("tokenizer.chat_template")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{name: tokens[i] for name, i in ids.items() if i is not None},
        **({"chat_template": template} if isinstance(template, str) else {}),
    }


def ends(metadata: Mapping[str, Any]) -> list[int]:
    """Ids that end a text: of a text, of a turn in a conversation, of a message."""
    return sorted({i for name in ("eos", "eot", "eom") if (i := token_id(metadata, name)) is not None})


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    name = metadata.get("tokenizer.ggml.pre", "default")
    merges = [m.split(" ") for m in _texts(metadata, "merges")]
    known = set(tokens)
    for merge in merges:
        if len(merge) != 2 or not known.issuperset((*merge, "".join(merge))):
            raise _refused(f"{shown(' '.join(merge))} is no merge of two tokens into one", "the file is damaged")
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _cuts(name)},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": _bpe(tokens, merges, ignore_merges=name in _WHOLE_WORDS_FIRST),
    }


def _cuts(name: object) -> list[dict[str, Any]]:
    """The steps that cut a text and spell its bytes."""
    if name in _GPT2:
        return [_spelling(cut=True)]
    if name in _DIGITS:
        return [{"type": "Digits", "individual_digits": True}, _spelling(cut=True)]
    if name == "default":
        return [*(_split(p) for p in _DEFAULT), _spelling(cut=False)]
    for pattern, names in _PATTERNS.items():
        if name in names.split():
            return [_split(pattern), _spelling(cut=False)]
    every = [*_GPT2, *_DIGITS, "default", *(n for names in _PATTERNS.values() for n in names.split())]
    raise _refused(f"text is cut by the pattern {shown(name)}", did_you_mean(str(name), every))


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _spelling(cut: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": cut}


def _sentencepiece(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
    unknown = token_id(metadata, "unknown")
    types = _integers(metadata, "token_type", len(tokens))
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise _refused("a vocabulary of the kind `llama` needs a score for each token", "the file is damaged")
    plain = {
        t: (s, i) for i, (t, s) in enumerate(zip(tokens, scores, strict=True)) if types[i] in (NORMAL, USER_DEFINED)
    }
    spelled = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    steps: list[dict[str, Any]] = [{"type": "Prepend", "prepend": "\u2581"}] if prefix else []
    back: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    model = _bpe(tokens, _merges(plain), ignore_merges=False)
    model |= {"byte_fallback": BYTE in types, "fuse_unk": True}
    model["unk_token"] = tokens[unknown] if unknown is not None else None
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*steps, spelled]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": back},
        "model": model,
    }


def _merges(plain: Mapping[str, tuple[float, int]]) -> list[list[str]]:
    """Pairs of tokens that make a token, best score of the result first; SentencePiece joins in that order."""
    found = [
        (-score, index, len(token[:cut]), token[:cut], token[cut:])
        for token, (score, index) in plain.items()
        for cut in range(1, len(token))
        if token[:cut] in plain and token[cut:] in plain
    ]
    return [[left, right] for _, _, _, left, right in sorted(found)]


def _bpe(tokens: Sequence[str], merges: list[list[str]], *, ignore_merges: bool) -> dict[str, Any]:
    vocabulary: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if vocabulary.setdefault(token, i) != i:
            raise _refused(f"the token {shown(token)} stands twice", "the file is damaged")
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
        "vocab": vocabulary,
        "merges": merges,
    }


def _frame(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """What stands around every text: bos in front and eos behind, where the file asks for them."""
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    usual = sentencepiece or metadata.get("tokenizer.ggml.pre") in _WHOLE_WORDS_FIRST
    bos = token_id(metadata, "bos") if metadata.get("tokenizer.ggml.add_bos_token", usual) is True else None
    eos = token_id(metadata, "eos") if metadata.get("tokenizer.ggml.add_eos_token", False) is True else None

    def around(name: str, segment: int) -> list[dict[str, Any]]:
        text = {"Sequence": {"id": name, "type_id": segment}}
        before = [] if bos is None else [{"SpecialToken": {"id": tokens[bos], "type_id": segment}}]
        behind = [] if eos is None else [{"SpecialToken": {"id": tokens[eos], "type_id": segment}}]
        return [*before, text, *behind]

    special = {tokens[i]: {"id": tokens[i], "ids": [i], "tokens": [tokens[i]]} for i in (bos, eos) if i is not None}
    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": special,
    }


def _texts(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _refused(f"`tokenizer.ggml.{name}` is no list of texts", "use a file with a whole tokenizer in it")
    return value


def _integers(metadata: Mapping[str, Any], name: str, count: int) -> list[int]:
    value = metadata.get(f"tokenizer.ggml.{name}", [NORMAL] * count)
    if not isinstance(value, list) or len(value) != count or not all(type(v) is int for v in value):
        raise _refused(
            f"`tokenizer.ggml.{name}` is no list of {count} numbers", "use a file with a whole tokenizer in it"
        )
    return value


def _refused(label: str, help: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("HYB521", NO_SPAN, label, help)])
