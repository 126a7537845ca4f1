"""Public checkpoints: config.json to AST, and the names of weights both ways. One module a family, named by
model_type."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.hf.config import Config, plain, read_config
from hybridc.frontend.hf.inverse import Found, misfit
from hybridc.frontend.hf.weightmap import WeightMap
from hybridc.ir.graph import Module
from hybridc.ir.ops import Op

SUPPORT = ("build", "config", "decoder", "fields", "inverse", "mambas", "match", "parts", "rope", "weightmap")
"""Modules of this package that are no family."""


@dataclass(frozen=True)
class Imported:
    """A public model: its family, its config as read, its spec, and where its weights are."""

    family: str
    config: dict[str, Any]
    spec: ast.Spec
    weights: WeightMap


def families() -> list[str]:
    """The model types that can be imported."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in SUPPORT)


def read(source: Path | dict[str, Any]) -> Imported:
    """A checkpoint folder, config file or config as an importable model. Raises DiagnosticError (HYB5xx)."""
    values = plain(source) if isinstance(source, dict) else read_config(Path(source))
    family = values.get("model_type")
    if not isinstance(family, str) or family not in families():
        shown = family if isinstance(family, str) else "nothing"
        raise DiagnosticError(
            [Diagnostic("HYB501", NO_SPAN, f"model_type is `{shown}`", did_you_mean(str(family or ""), families()))]
        )
    module = importlib.import_module(f"{__name__}.{family}")
    make: Callable[[Config], tuple[ast.Spec, WeightMap]] = module.from_config
    config = Config(values, family)
    spec, weights = make(config)
    config.done()
    return Imported(family, values, spec, weights)


def export_config(module: Module, family: str = "") -> dict[str, Any]:
    """The config.json of a typed model in a family's form, without fields that change no number.

    `family` is the model's name where it is not given. Raises DiagnosticError: HYB501 for an unknown family, HYB514 for
    a model that the family cannot express.
    """
    chosen = family or module.name
    if chosen not in families():
        label = (
            f"the model is called `{chosen}`, which is no family" if not family else f"there is no family `{chosen}`"
        )
        raise DiagnosticError([Diagnostic("HYB501", NO_SPAN, label, did_you_mean(chosen, families()))])
    write: Callable[[Found], dict[str, Any]] = importlib.import_module(f"{__name__}.{chosen}").to_config
    try:
        fields = write(Found(module))
    except AttributeError as error:
        kind = type(error.obj).__name__.lower() if isinstance(error.obj, Op) else "part of it"
        raise misfit(f"the model is not in the form of `{chosen}`: its {kind} has no `{error.name}`") from error
    except (KeyError, IndexError, StopIteration) as error:
        raise misfit(f"the model is not in the form of `{chosen}`") from error
    return {"model_type": chosen, **fields}


def import_config(source: Path | dict[str, Any]) -> ast.Spec:
    """The spec of a public model."""
    return read(source).spec
