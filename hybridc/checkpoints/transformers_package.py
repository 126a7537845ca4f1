"""`hybridc compile --as transformers`: a package that transformers loads, with or without weights."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridc.checkpoints.folders import CARRIED
from hybridc.checkpoints.hub import from_hf, import_hf
from hybridc.checkpoints.safetensors_writer import FORMATS, dtype_of, main_dtype, write_tensors
from hybridc.codegen.package import is_package, write_package
from hybridc.codegen.transformers_code import WEIGHTS_PREFIX, with_transformers
from hybridc.compiler import Compiled
from hybridc.console import wrong
from hybridc.frontend.gguf.file import is_gguf
from hybridc.tokens import settings

if TYPE_CHECKING:
    from torch import nn


def as_transformers(compiled: Compiled, token_ids: Mapping[str, object] | None = None) -> Compiled:
    """The same with `config.json`, `configuration_NAME.py` and `modeling_NAME.py`, by which
    `AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True)` finds the model.

    `token_ids` are entries of the config such as `eos_token_id`.
    """
    return replace(compiled, source=with_transformers(compiled.source, compiled.ir, token_ids or {}))


def save_transformers(
    compiled: Compiled,
    folder: str | Path,
    *,
    net: nn.Module | None = None,
    token_ids: Mapping[str, object] | None = None,
    beside: Sequence[Path] = (),
) -> Path:
    """Writes a package that transformers loads into `folder`, all of it or nothing, and returns its path.

    `net` has the weights for model.safetensors; without it there are none, and `AutoModelForCausalLM.from_config` makes
    a model with initial weights. `beside` are files to be copied into the folder. Raises DiagnosticError.
    """

    def fill(made: Path) -> None:
        for file in beside:
            shutil.copyfile(file, made / file.name)
        if net is not None:
            _write_weights(net, made / "model.safetensors")

    entries = dict(token_ids or {})
    if net is not None:
        entries["dtype"] = main_dtype(net.parameters())
    write_package(as_transformers(compiled, entries).source, Path(folder), fill)
    return Path(folder)


def _write_weights(net: nn.Module, path: Path) -> None:
    """All parameters and what is saved beside them, each in its own format, tied ones once."""
    second = {name for name, _ in net.named_parameters(remove_duplicate=False)} - dict(net.named_parameters()).keys()
    parameters = {WEIGHTS_PREFIX + name: t for name, t in net.state_dict().items() if name not in second}
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    formats = {name: FORMATS[dtype_of(p)] for name, p in parameters.items()}
    write_tensors(path, shapes, lambda name: parameters[name], formats)


def spec_of(source: Path, set: Sequence[str]) -> Any:
    """What `hybridc.compile` takes for a spec file, an emitted package or a checkpoint's folder. Ends the command for a
    GGUF file, and for a folder whose sizes are to be `set`."""
    if source.is_dir() and set:
        wrong("--set belongs to specs: a folder brings its own sizes")
    if is_package(source):
        return source / "spec.hyb"
    if (source / "config.json").is_file():
        return import_hf(source)
    if is_gguf(source):
        wrong(f"{source} is a GGUF file: make a checkpoint's folder of it with `hybridc import gguf FILE --to DIR`")
    return source


def write(
    source: Path,
    compiled: Compiled,
    folder: Path,
    *,
    weights: Path | None,
    seed: int | None,
    include: Sequence[Path],
) -> list[str]:
    """What the command writes for a spec, package or checkpoint's folder; returns the names of the files.

    Weights are those of `weights`, a safetensors file with the net's own names, else initial ones from `seed`, else
    those that the source has, if it has any.
    """
    from hybridc.prompting import load_net, load_weights

    if weights is not None and seed is not None:
        wrong("--weights and --seed both say where the weights come from: give one of them")
    checkpoint = source.is_dir() and not is_package(source)
    if checkpoint and (weights is not None or seed is not None):
        wrong("a checkpoint's folder brings its own weights: leave out --weights and --seed")
    config = settings(source / "config.json") if source.is_dir() else {}
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    token_ids = {name: config[name] for name in names if config.get(name) is not None}
    beside = [source / name for name in CARRIED if (source / name).is_file()] if source.is_dir() else []
    net = None
    if weights is not None or seed is not None:
        net = compiled.load(seed=seed or 0)
        if weights is not None:
            load_weights(net, weights)
    elif checkpoint and (source / "config.json").is_file() and not (source / "model.py").is_file():
        net = from_hf(source, dtype="auto")
    elif source.is_dir() and any(source.glob("*.safetensors")):
        net = load_net(source, None, {}, include)
    save_transformers(compiled, folder, net=net, token_ids=token_ids, beside=beside)
    return sorted(file.name for file in folder.iterdir())
