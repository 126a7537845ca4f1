"""Public checkpoints and what stands for them: a spec, or a module with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridc.compiler import compile
from hybridc.frontend import ast
from hybridc.frontend.hf import import_config, read

if TYPE_CHECKING:
    from torch import nn


def import_hf(folder: str | Path) -> ast.Spec:
    """The spec that a public checkpoint's config.json describes, without weights. Raises DiagnosticError."""
    return import_config(Path(folder))


def import_nemotron(letters: str) -> ast.Spec:
    """A spec of the layers that Nemotron-H's one-letter string names (`M` Mamba-2, `*` attention, `-` mlp, `E`
    experts), in the sizes that transformers' config class has by itself. Raises DiagnosticError (HYB503)."""
    return import_config({"model_type": "nemotron_h", "hybrid_override_pattern": letters})


def from_hf(folder: str | Path, *, target: str = "cpu", mesh: Mapping[str, Any] | None = None) -> nn.Module:
    """The emitted module of a public checkpoint, with its weights. Raises DiagnosticError."""
    from hybridc.checkpoints.weights import bind, load_hf

    imported = read(Path(folder))
    compiled = compile(imported.spec, target=target, mesh=mesh)
    net = compiled.skeleton()
    bind(net, imported)
    load_hf(net, Path(folder))
    return net
