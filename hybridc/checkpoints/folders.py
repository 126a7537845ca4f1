"""Folders that appear when all is in them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError

CARRIED = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "tokenizer.model", "vocab.json", "merges.txt", "chat_template.jinja",
)  # fmt: skip
"""Files of a checkpoint's folder that say nothing about the net, such as the tokenizer's; they are taken over as they
are."""


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when all is in it; nothing is left of it where something fails.

    Raises DiagnosticError: HYB403 where the name is taken by anything but an empty folder, HYB404 where it cannot be
    written.
    """
    target = Path(os.path.abspath(folder))
    beside: Path | None = None
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            label = f"`{target.name}` exists and is not an empty folder"
            raise DiagnosticError([Diagnostic("HYB403", NO_SPAN, label, "name a new or empty folder")])
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        yield beside
        umask = os.umask(0)
        os.umask(umask)
        beside.chmod(0o777 & ~umask)
        os.replace(beside, target)
    except OSError as error:
        label = f"`{target.name}` cannot be written: {error.strerror or error}"
        help = "name a folder that you may write, on a disk with room for the model"
        raise DiagnosticError([Diagnostic("HYB404", NO_SPAN, label, help)]) from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
