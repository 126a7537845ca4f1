"""Text to token ids and back, for `hybridc generate`: a vocabulary of bytes, a tokenizer.json, a GGUF file's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from hybridc.console import Stop, wrong

BYTES = 256
"""Ids of the bytes vocabulary: one for each byte of UTF-8 text."""

MAX_CONFIG = 1 << 20
"""Bytes of a config."""


class Tokens(Protocol):
    """Text to ids and back."""

    def encode(self, text: str) -> list[int]:
        """The ids that a model goes on from: those of the text, behind what the tokenizer puts in front of texts."""
        ...

    def pieces(self, text: str) -> list[int]:
        """The ids of the text alone."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


class ByteTokens:
    """Each byte of the UTF-8 text is an id. What is no text when decoded shows as a replacement sign."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))

    pieces = encode

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < BYTES).decode("utf-8", errors="replace")


class LibraryTokens:
    """A tokenizer of the library `tokenizers`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        # what the tokenizer puts behind texts is left out: it ends them, and a model is to go on
        alone, framed = self.pieces("a"), list(inner.encode("a").ids)
        starts = (n for n in range(len(framed)) if framed[n : n + len(alone)] == alone)
        self.front = framed[: next(starts, 0)]

    @classmethod
    def from_folder(cls, folder: Path) -> LibraryTokens:
        """tokenizer.json. It alone says what stands around a text: flags of a tokenizer_config.json beside it have no
        effect in transformers 5 either."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")))

    @classmethod
    def from_gguf(cls, path: Path) -> LibraryTokens:
        """The vocabulary in a GGUF file. Raises DiagnosticError for one that is not read."""
        from tokenizers import Tokenizer

        from hybridc.frontend.gguf.file import read_file
        from hybridc.frontend.gguf.tokenizer import tokenizer_json

        return cls(Tokenizer.from_str(json.dumps(tokenizer_json(read_file(path).metadata))))

    def encode(self, text: str) -> list[int]:
        return [*self.front, *self.pieces(text)]

    def pieces(self, text: str) -> list[int]:
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.inner.decode(list(ids)))


def settings(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or nothing where there is no file. Ends the command where it cannot
    be read."""
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_CONFIG:
            wrong(f"{path} is larger than {MAX_CONFIG} bytes")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        wrong(f"cannot read {path}: {error.strerror or error}")
    except (ValueError, RecursionError):
        wrong(f"{path} is not JSON")
    return value if isinstance(value, dict) else {}


def tokens_for(source: Path, vocab: int) -> Tokens:
    """The tokenizer in a GGUF file, the tokenizer.json in the folder of `source`, else bytes. Ends the command where
    none fits `vocab`."""
    from hybridc.diagnostics import DiagnosticError
    from hybridc.frontend.gguf.file import is_gguf

    folder = source if source.is_dir() else source.parent
    if is_gguf(source):
        found, make = source, LibraryTokens.from_gguf
    else:
        found, make = folder / "tokenizer.json", lambda _: LibraryTokens.from_folder(folder)
    if found.is_file():
        try:
            return make(found)
        except (ImportError, DiagnosticError, Stop):
            raise
        except Exception as error:  # the library raises bare Exception for a file that it cannot read
            wrong(f"cannot read {found}: {error}")
    if vocab < BYTES:
        wrong(f"there is no tokenizer.json, and a vocabulary of {vocab} is too small for bytes: give --ids")
    return ByteTokens()


def end_ids(source: Path) -> list[int]:
    """Ids that end a text of this model, as its own files say: `eos_token_id` of generation_config.json or else of
    config.json, or the entries of a GGUF file."""
    from hybridc.frontend.gguf.file import is_gguf, read_file
    from hybridc.frontend.gguf.tokenizer import ends

    if is_gguf(source):
        return ends(read_file(source).metadata)
    if not source.is_dir():
        return []
    for name in ("generation_config.json", "config.json"):
        found = settings(source / name).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        if any(type(i) is int for i in ids):
            return [i for i in ids if type(i) is int]
    return []
