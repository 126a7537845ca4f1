"""A net as the folder of a public checkpoint, which transformers loads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridc.checkpoints.folders import CARRIED, new_folder
from hybridc.checkpoints.safetensors_writer import FORMATS, dtype_of, main_dtype, write_tensors
from hybridc.console import note
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, Sink
from hybridc.frontend import ast
from hybridc.frontend.hf.weightmap import Source
from hybridc.ir.graph import Module

if TYPE_CHECKING:
    from torch import Tensor, nn

SHARD_BYTES = 5 << 30
"""Files of a checkpoint are at most this large, as those of the public hub."""


def to_hf(net: nn.Module, folder: str | Path, *, family: str = "", beside: str | Path | None = None) -> Path:
    """Writes a net as the folder of a public checkpoint: config.json and safetensors files.

    A net from `from_hf` keeps its config. One that was compiled from a spec gets the config of `family`, or of the one
    that its model is called by. `beside` is a folder whose tokenizer's files are copied. The folder must be new or
    empty, and appears when it is complete. Raises DiagnosticError: HYB501 and HYB514 for a model that is none of the
    family, HYB513 for a net without a spec, HYB403 and HYB404 for the folder.
    """
    config, sources = described(net, family)
    parameters = dict(net.named_parameters(remove_duplicate=True))
    if unknown := {dtype_of(p) for p in parameters.values()} - set(FORMATS):
        label = f"parameters are {', '.join(sorted(unknown))}"
        raise DiagnosticError([Diagnostic("HYB513", NO_SPAN, label, "cast the net to float32, bfloat16 or float16")])
    with new_folder(Path(folder)) as made:
        text = json.dumps({**config, "dtype": main_dtype(parameters.values())}, indent=2, sort_keys=True)
        (made / "config.json").write_text(text + "\n", encoding="utf-8", newline="\n")
        for name in CARRIED if beside is not None else ():
            if (Path(beside) / name).is_file():  # type: ignore[arg-type]
                shutil.copyfile(Path(beside) / name, made / name)  # type: ignore[arg-type]
        _write(made, parameters, sources)
    return Path(folder)


def described(net: nn.Module, family: str = "") -> tuple[dict[str, Any], Mapping[str, Source]]:
    """The public config of a net, and the public tensors of its parameters."""
    from hybridc.checkpoints.weights import Binding
    from hybridc.frontend.hf.match import match

    binding = getattr(net, "hf", None)
    if isinstance(binding, Binding) and family in ("", binding.imported.family):
        return binding.imported.config, binding.sources
    module = getattr(net, "ir", None)
    if not isinstance(module, Module):
        label = "this net has no spec, so nothing says what its config is"
        raise DiagnosticError([Diagnostic("HYB513", NO_SPAN, label, "make it with hybridc.compile or hybridc.from_hf")])
    found = match(module, family, analysed)
    # no id of a spec's vocabulary has a meaning of its own, whatever the family's is
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return {**found.imported.config, **ids}, found.sources


def analysed(spec: ast.Spec) -> Module:
    """The typed module of a spec. Raises DiagnosticError."""
    from hybridc.compiler import analyse

    sink = Sink()
    module, _ = analyse(spec, sink)
    sink.check()
    assert module is not None
    return module


def _write(folder: Path, parameters: Mapping[str, Tensor], sources: Mapping[str, Source]) -> None:
    """Writes all tensors, in files of SHARD_BYTES at most; with several, the index that says which is where."""
    import torch

    from hybridc.checkpoints.weights import take_apart

    plain: torch.dtype = getattr(torch, main_dtype(parameters.values()))
    shards: list[dict[str, Tensor]] = [{}]
    size = total = 0
    for name, parameter in parameters.items():
        if name not in sources:
            continue
        # parts are views as far as they can be, so that no second copy of the weights is made
        parts = dict(take_apart(sources[name], parameter.detach()))
        if sources[name].ternary:  # readers multiply with such tensors as they are
            parts = {k: v.to(plain) for k, v in parts.items()}
        count = sum(p.numel() * p.element_size() for p in parts.values())
        if size and size + count > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1] |= parts
        size, total = size + count, total + count
    weight_map: dict[str, str] = {}
    for n, shard in enumerate(shards, start=1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{n:05d}-of-{len(shards):05d}.safetensors"
        formats = {k: FORMATS[dtype_of(v)] for k, v in shard.items()}
        write_tensors(folder / file, {k: tuple(v.shape) for k, v in shard.items()}, shard.__getitem__, formats)
        weight_map |= dict.fromkeys(shard, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        text = json.dumps(index, indent=2, sort_keys=True)
        (folder / "model.safetensors.index.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def export_folder(source: Path, folder: Path, *, family: str = "", weights: Path | None = None) -> Path:
    """`hybridc export hf`: a checkpoint's folder, an emitted package or a spec as the folder of a public checkpoint.

    `weights` is a safetensors file with the net's own names, for a package or a spec, which have none themselves; those
    of a checkpoint stay in the format that most of them are in. Raises DiagnosticError.
    """
    import hybridc
    from hybridc.codegen.package import is_package
    from hybridc.prompting import load_weights

    if source.is_dir() and not is_package(source):
        if weights is not None:
            label = f"`{source.name}` is a checkpoint, which brings its own weights"
            raise DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, "leave out --weights")])
        return to_hf(hybridc.from_hf(source, dtype="auto"), folder, family=family, beside=source)
    net = hybridc.compile(source / "spec.hyb" if source.is_dir() else source, serial=True).load()
    if weights is None:
        note("without --weights FILE the weights are initial ones")
    else:
        load_weights(net, weights)
    return to_hf(net, folder, family=family, beside=source if source.is_dir() else source.parent)
