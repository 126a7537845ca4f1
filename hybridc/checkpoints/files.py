"""The safetensors files of a checkpoint's folder: which tensor is where, read one at a time."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hybridc.checkpoints.names import folded
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 50
"""Patterns of names listed in a diagnostic; the rest is counted. All layers of a model have fewer kinds of tensors."""

MAX_INDEX_BYTES = 256 << 20
"""An index has about a hundred bytes a tensor."""

FORMATS = ("F64", "F32", "F16", "BF16")
"""Formats of tensors that are read, in safetensors' names. Bytes are read where the net has bytes too; other quantized
ones have scales beside them and are refused."""


class Tensors(Protocol):
    """Tensors under their public names: shapes and formats before the numbers."""

    def names(self) -> set[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def format(self, name: str) -> str: ...

    def tensor(self, name: str) -> Tensor: ...


WINDOW_BYTES = 64 << 20
"""What is read of a mapped file before it is mapped anew: pages that were read count as the process's memory."""


class Files:
    """The tensors of a checkpoint folder by name, read one at a time from mapped files.

    A tensor is a window onto its file: it is to be copied before the next one is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.paths: dict[str, Path] = {}
        self.handles: dict[Path, Any] = {}
        listed = shards(folder)
        self.read = dict.fromkeys(listed, 0)
        held = {path: list(self._open(path).keys()) for path in listed}
        for path, names in held.items():
            self.paths |= dict.fromkeys(names, path)
        placed = {name: path for path, names in listed.items() for name in names}
        if lost := [name for name, path in placed.items() if name not in held[path]]:
            self.close()
            label = f"{counted(len(lost))} not in the shards that the index names: {', '.join(folded(lost)[:SHOWN])}"
            raise DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, "download the index and the shards again")])
        self.paths |= placed  # of a tensor that two shards hold, the index says which counts

    def _open(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        try:
            self.handles[path] = safe_open(str(path), framework="pt").__enter__()  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError, ValueError) as error:
            self.close()
            label = f"`{path.name}` is not a safetensors file: {str(error)[:120]}"
            raise DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, "download it again")]) from error
        return self.handles[path]

    def close(self) -> None:
        """Unmaps the files."""
        for handle in self.handles.values():
            handle.__exit__(None, None, None)
        self.handles.clear()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> set[str]:
        return set(self.paths)

    def _slice(self, name: str) -> Any:
        return self.handles[self.paths[name]].get_slice(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._slice(name).get_shape())

    def format(self, name: str) -> str:
        return str(self._slice(name).get_dtype())

    def dtype(self) -> str:
        """torch's name of the format that most numbers are in; float32 where they are in none that is read."""
        counts: dict[str, int] = {}
        for name in self.paths:
            if (format := self.format(name)) in FORMATS:
                counts[format] = counts.get(format, 0) + math.prod(self.shape(name))
        most = max(counts, key=lambda f: counts[f], default="F32")
        return {"BF16": "bfloat16", "F16": "float16"}.get(most, "float32")

    def tensor(self, name: str) -> Tensor:
        path = self.paths[name]
        if self.read[path] > WINDOW_BYTES:
            self.handles.pop(path).__exit__(None, None, None)
            self._open(path)
            self.read[path] = 0
        value: Tensor = self.handles[path].get_tensor(name)
        self.read[path] += value.numel() * value.element_size()
        return value


def shards(folder: Path) -> dict[Path, list[str]]:
    """The safetensors files of a folder, each with the tensors that the index puts there: those that the index names,
    or the only one. Raises DiagnosticError (HYB512)."""

    def bad(label: str, help: str) -> DiagnosticError:
        return DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, help)])

    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if not index.exists():
        if single.exists():
            if not single.is_file():
                raise bad(f"`{single.name}` is no plain file", "name a checkpoint folder")
            return {single: []}
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
            raise bad("the weights are pickled files, which can run code", "convert them to safetensors first")
        raise bad(f"`{folder.name}` has no model.safetensors and no index of shards", "name a checkpoint folder")
    try:
        if not index.is_file():
            raise bad(f"`{index.name}` is no plain file", "name a checkpoint folder")
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise bad(f"`{index.name}` is larger than {MAX_INDEX_BYTES} bytes", "name a checkpoint folder")
        places = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        listed = sorted(set(places.values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise bad(f"`{index.name}` is not an index of shards", "download it again") from error
    for name in listed:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise bad(f"the index names the shard {name!r}", "a shard is a safetensors file in the same folder")
        if not _exists(folder / name):
            raise bad(f"the shard `{_shorter(name)}` is missing", "download it")
    out: dict[Path, list[str]] = {folder / name: [] for name in listed}
    for tensor, name in places.items():
        out[folder / name].append(tensor)
    return out


def _exists(path: Path) -> bool:
    """Whether a plain file is there; a name that no file can have is not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _shorter(name: str) -> str:
    return name if len(name) <= 100 else name[:97] + "..."


def counted(count: int) -> str:
    """So many tensors, as the start of a sentence."""
    return "1 tensor is" if count == 1 else f"{count} tensors are"
