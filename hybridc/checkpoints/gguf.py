"""A GGUF file as a net, and as the folder of a public checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridc.checkpoints.folders import new_folder
from hybridc.checkpoints.safetensors_writer import FORMATS, write_tensors
from hybridc.frontend import ast
from hybridc.frontend.gguf import read
from hybridc.frontend.gguf.config import token_id
from hybridc.frontend.gguf.tokenizer import ends, has_tokenizer, tokenizer_config, tokenizer_json

if TYPE_CHECKING:
    from torch import nn


def import_gguf(path: str | Path) -> ast.Spec:
    """The spec of the model in a GGUF file, without weights. Raises DiagnosticError."""
    return read(Path(path)).model.spec


def from_gguf(path: str | Path, *, target: str = "cpu", mesh: Mapping[str, Any] | None = None) -> nn.Module:
    """The emitted module of a GGUF file of the llama architecture, with its weights dequantised to fp32.

    Raises DiagnosticError: for a file that is none or is damaged (HYB520), for metadata that cannot be honoured
    (HYB501-HYB503), for tensors that are missing, do not fit or cannot be dequantised (HYB510, HYB511, HYB522).
    """
    from hybridc.checkpoints.gguf_tensors import GgufTensors
    from hybridc.checkpoints.weights import bind, load_tensors
    from hybridc.compiler import compile

    imported = read(Path(path))
    with GgufTensors(imported) as tensors:
        compiled = compile(imported.model.spec, target=target, mesh=mesh)
        net = compiled.skeleton()
        bind(net, imported.model)
        load_tensors(net, tensors)
    return net


def gguf_to_hf(path: str | Path, folder: str | Path, *, dtype: str = "float32") -> Path:
    """Writes the model in a GGUF file as the folder of a public checkpoint: config.json, model.safetensors,
    tokenizer.json and what belongs to it. `hybridc.from_hf` and transformers read it.

    The weights are dequantised to fp32 and rounded to `dtype` (float32, bfloat16 or float16), one at a time. The folder
    must be new or empty; it appears when it is complete. Raises DiagnosticError as `from_gguf`, HYB521 for a tokenizer
    that cannot be written down, HYB403 and HYB404 for the folder; ValueError for another dtype.
    """
    from hybridc.checkpoints.gguf_tensors import GgufTensors

    if dtype not in FORMATS:
        raise ValueError(f"dtype is {dtype!r}; give one of {', '.join(FORMATS)}")
    imported = read(Path(path))
    metadata = imported.file.metadata
    ids = {f"{name}_token_id": token_id(metadata, name) for name in ("bos",)} | {"eos_token_id": ends(metadata)}
    files: dict[str, object] = {"config.json": imported.config | {"dtype": dtype}}
    files["generation_config.json"] = {name: value for name, value in ids.items() if value not in (None, [])}
    if has_tokenizer(metadata):
        files |= {"tokenizer.json": tokenizer_json(metadata), "tokenizer_config.json": tokenizer_config(metadata)}
    shapes = {name: piece.shape for name, piece in imported.pieces.items()}
    with GgufTensors(imported) as tensors, new_folder(Path(folder)) as beside:
        for name, value in files.items():
            text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
            (beside / name).write_text(text, encoding="utf-8", newline="\n")
        write_tensors(beside / "model.safetensors", shapes, tensors.tensor, FORMATS[dtype])
    return Path(folder)
