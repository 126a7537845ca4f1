"""GGUF files of the llama architecture: metadata to a public config, names of tensors, the tokenizer.

What is read here is the header only; numbers are read by `hybridc.checkpoints.gguf_tensors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridc.frontend.gguf.config import config_of
from hybridc.frontend.gguf.file import GgufFile, read_file
from hybridc.frontend.gguf.names import Piece, pieces
from hybridc.frontend.hf import Imported
from hybridc.frontend.hf import read as read_config


@dataclass(frozen=True)
class ImportedGguf:
    """A GGUF file: its header, the public config that it stands for, that config's model, where its tensors are."""

    file: GgufFile
    config: dict[str, Any]
    model: Imported
    pieces: dict[str, Piece]


def read(path: Path) -> ImportedGguf:
    """A GGUF file as an importable model. Raises DiagnosticError (HYB5xx)."""
    file = read_file(path)
    config = config_of(file)
    return ImportedGguf(file, config, read_config(config), pieces(config, file))
