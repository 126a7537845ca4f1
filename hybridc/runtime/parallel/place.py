"""A model on its mesh: which axis its parts send over, and which parts this rank has none of."""

from __future__ import annotations

from torch import nn

from hybridc.runtime.module import LanguageModel
from hybridc.runtime.parallel.axis import Axis
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.shards import first


def place(model: LanguageModel, mesh: Mesh) -> None:
    """Tells the model and its parts their place on the mesh, and takes away what the first tensor-parallel rank alone
    has. Parameters keep their numbers: `init_weights` or `load_whole_state_dict` fill them."""
    model.mesh = mesh
    for module in model.modules():
        if isinstance(getattr(module, "tp", None), Axis):
            module.tp = mesh.tp
    if mesh.tp.rank:
        for name, shard in model.shards().items():
            if isinstance(shard, first):
                owner, _, leaf = name.rpartition(".")
                _without(model.get_submodule(owner), leaf)


def _without(module: nn.Module, name: str) -> None:
    """Takes away a parameter."""
    if name in module._parameters:
        module._parameters[name] = None
