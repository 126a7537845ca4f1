"""Writes the emitted package: the same bytes for the same input, all of it or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hybridc.codegen.torch_code import emit_model
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.ir.folding import fold
from hybridc.ir.graph import Block, Module
from hybridc.passes.analysis.cost import parameter_count
from hybridc.version import VERSION

MARK = "hybridc"
"""The manifest's key that says a folder is an emitted package."""


def emit_package(module: Module, spec_text: str, *, target: str) -> dict[str, str]:
    """The files of a package by name: `__init__.py`, `model.py`, `manifest.json`, `spec.hyb`."""
    digest = hashlib.sha256(spec_text.encode()).hexdigest()
    origin = (
        f"{module.name}: {len(module.layers)} layers. Emitted by hybridc {VERSION} from spec.hyb (sha256 "
        f"{digest[:12]}).\n\n"
        "Do not edit: edit the spec and compile again.\n"
    )
    return {
        "__init__.py": (
            f'"""The model {module.name}, emitted by hybridc {VERSION}."""\n\n'
            'from .model import Model\n\n__all__ = ["Model"]\n'
        ),
        "manifest.json": json.dumps(_manifest(module, digest, target), indent=2) + "\n",
        "model.py": emit_model(module, origin),
        "spec.hyb": spec_text,
    }


def _manifest(module: Module, digest: str, target: str) -> dict[str, object]:
    blocks = {
        b.name: {"layers": module.counts.get(b.name, 1), "parameters": _parameters(b)}
        for b in (module.embed, *module.blocks, module.head)
    }
    return {
        MARK: VERSION,
        "model": module.name,
        "spec_sha256": digest,
        "target": target,
        "params": dict(module.params),
        "mesh": {a.name: a.form for a in module.mesh},
        "precision": {
            "default": module.dtype.value,
            "rules": [{"format": r.format, "on": list(r.on), "except": list(r.exclude)} for r in module.precision],
        },
        "layers": fold([layer.block for layer in module.layers]),
        "parameter_count": parameter_count(module),
        "blocks": blocks,
    }


def _parameters(block: Block) -> list[dict[str, object]]:
    return [
        {
            "name": f"{node.path}.{p.name}",
            "shape": list(p.shape),
            "dtype": "uint8" if p.packs else "fp32" if p.fp32 else block.types[block.result].dtype.value,
            **({"tied": True} if p.tied else {}),
        }
        for node, p in block.params()
    ]


def is_package(folder: Path) -> bool:
    """Whether a folder is one that `write_package` wrote."""
    try:
        text = (folder / "manifest.json").read_text(encoding="utf-8")
        return MARK in json.loads(text)
    except (OSError, ValueError, TypeError):
        return False


def write_package(files: dict[str, str], folder: Path, fill: Callable[[Path], object] | None = None) -> None:
    """Puts the files into `folder`: written beside it, then renamed, so that a reader never sees half a package.

    Replaces an earlier package or an empty folder; raises DiagnosticError (HYB403) for a folder that holds anything
    else. `fill` is called with the folder in the making, to write what is not text.
    """
    folder = Path(os.path.abspath(folder))
    try:
        free = not folder.exists() or (folder.is_dir() and (is_package(folder) or not any(folder.iterdir())))
    except OSError as error:
        raise _unwritable(folder, error) from error
    if not free:
        raise DiagnosticError(
            [
                Diagnostic(
                    "HYB403",
                    NO_SPAN,
                    f"`{folder.name}` exists and is not a package that hybridc wrote",
                    "name a new or empty folder",
                )
            ]
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        for name, text in files.items():
            with open(beside / name, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
        if fill is not None:
            fill(beside)
        umask = os.umask(0)
        os.umask(umask)
        beside.chmod(0o777 & ~umask)
        _swap(beside, folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _swap(new: Path, folder: Path) -> None:
    """Puts `new` in the place of `folder`; where that fails, the old one is put back."""
    if not folder.exists():
        os.rename(new, folder)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        os.rename(folder, aside / "old")
        try:
            os.rename(new, folder)
        except OSError:
            os.replace(aside / "old", folder)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> DiagnosticError:
    cause = error.strerror or str(error)
    return DiagnosticError(
        [
            Diagnostic(
                "HYB404", NO_SPAN, f"`{folder.name}` cannot be written: {cause}", "name a folder that you may write"
            )
        ]
    )
