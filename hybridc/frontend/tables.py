"""The parser's tables, kept between processes: making them takes longer than all else that parsing a spec does.

The file lies in the user's cache folder, is JSON (reading it can run nothing) and named after the grammar and lark's
version. It is read only if nobody else could have written it; whatever is wrong with it, the tables are made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import Lexer, TerminalDef

MAX_BYTES = 4 << 20


def parser(grammar: str, lexer: type[Lexer]) -> Lark:
    """An LALR parser of `grammar` that is fed by `lexer`."""
    path = _path(grammar)
    if path is not None:
        try:
            return _load(json.loads(_read_own(path)), lexer)
        except Exception:
            # nothing depends on this file: a broken one is as good as none, and is replaced
            pass
    made = Lark(grammar, parser="lalr", lexer=lexer, propagate_positions=True)
    if path is not None:
        _store(path, made)
    return made


def _path(grammar: str) -> Path | None:
    """Where the tables of this grammar lie, or None for a user without a home."""
    key = hashlib.sha256(f"{lark.__version__}\0{grammar}".encode()).hexdigest()[:32]
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    if not base or not os.path.isabs(base):
        home = os.path.expanduser("~")
        if not os.path.isabs(home) or not os.path.isdir(home):
            return None
        base = os.path.join(home, ".cache")
    return Path(base) / "hybridc" / f"grammar-{key}.json"


def _only_ours(info: os.stat_result) -> bool:
    """Whether no other user can write there. Windows has no such bits; a cache folder there is the user's own."""
    if not hasattr(os, "geteuid"):
        return True
    return info.st_uid == os.geteuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read_own(path: Path) -> bytes:
    """The file's bytes. Raises OSError if it, or its folder, is not the user's alone."""
    if not _only_ours(os.lstat(path.parent)) or not stat.S_ISDIR(os.lstat(path.parent).st_mode):
        raise PermissionError(str(path.parent))
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or not _only_ours(info) or info.st_size > MAX_BYTES:
            raise PermissionError(str(path))
        return file.read()


def _store(path: Path, made: Lark) -> None:
    """Writes the tables beside their place and moves them there; without effect where that is not possible."""
    data, memo = made.memo_serialize([TerminalDef, Rule])
    data["options"] = {"start": data["options"]["start"], "propagate_positions": True, "parser": "lalr"}
    data["parser"]["lexer_conf"]["lexer_type"] = None
    temporary = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _only_ours(os.lstat(path.parent)):
            return
        handle, temporary = tempfile.mkstemp(prefix=".grammar-", dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({"data": data, "memo": memo}, file, separators=(",", ":"))
        os.replace(temporary, path)
    except (OSError, TypeError, ValueError):
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _load(stored: dict[str, Any], lexer: type[Lexer]) -> Lark:
    """The parser from its stored tables. JSON has made strings of the numbers that are keys."""
    data, memo = stored["data"], {int(key): value for key, value in stored["memo"].items()}
    data["options"]["lexer"] = data["parser"]["lexer_conf"]["lexer_type"] = lexer
    tables = data["parser"]["parser"]
    tables["tokens"] = {int(key): value for key, value in tables["tokens"].items()}
    tables["states"] = {
        int(state): {int(token): action for token, action in actions.items()}
        for state, actions in tables["states"].items()
    }
    return Lark.load({"data": data, "memo": memo})
