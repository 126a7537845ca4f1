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
    from torch.distributed.device_mesh import DeviceMesh


def import_hf(folder: str | Path) -> ast.Spec:
    """The spec that a public checkpoint's config.json describes, without weights. Raises DiagnosticError."""
    return import_config(Path(folder))


def import_nemotron(letters: str) -> ast.Spec:
    """A spec of the layers that Nemotron-H's one-letter string names (`M` Mamba-2, `*` attention, `-` mlp, `E`
    experts), in the sizes that transformers' config class has by itself. Raises DiagnosticError (HYB503)."""
    return import_config({"model_type": "nemotron_h", "hybrid_override_pattern": letters})


DTYPES = ("float32", "bfloat16", "float16", "auto")
"""What the weights of a loaded net can be; `auto` is what most of the file's numbers are."""


def from_hf(
    folder: str | Path,
    *,
    dtype: str = "float32",
    target: str = "cpu",
    mesh: Mapping[str, Any] | None = None,
    device_mesh: DeviceMesh | None = None,
) -> nn.Module:
    """The emitted module of a public checkpoint, with its weights in a dtype of DTYPES.

    What stays fp32 whatever a net is cast to (routers, A_log, dt_bias, D) is fp32 here too. With a `mesh` of more than
    one rank, every rank calls this with its `device_mesh`, and reads the whole file to take its parts. Raises
    DiagnosticError for a folder that is no checkpoint, ValueError for another dtype and for a mesh without a device
    mesh.
    """
    import torch

    from hybridc.checkpoints.files import Files
    from hybridc.checkpoints.weights import bind, load_parts, load_tensors

    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    imported = read(Path(folder))
    compiled = compile(imported.spec, target=target, mesh=mesh)
    net: Any = compiled.skeleton()
    bind(net, imported)
    with Files(Path(folder)) as files:
        chosen = files.dtype() if dtype == "auto" else dtype
        if chosen != "float32":
            net.to(getattr(torch, chosen))
        if not net.MESH:
            load_tensors(net, files)
        elif device_mesh is None:
            raise ValueError("a model of a mesh is loaded onto it: give device_mesh")
        else:
            net = compiled.shard(net, device_mesh)
            net.to_empty(device=device_mesh.device_type)
            load_parts(net, compile(imported.spec, serial=True).skeleton(), files)
    made: nn.Module = net
    return made
