"""A model on its mesh: which axis its parts send over, and which parts this rank has none of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from hybridc.runtime.parallel.across import Across, Scaled
from hybridc.runtime.parallel.axis import Axis
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.shards import first

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel


def place(model: LanguageModel, mesh: Mesh) -> None:
    """Tells the model and its parts their place on the mesh, and takes away what the first tensor-parallel rank alone
    has. Parameters keep their numbers: `init_weights` or `load_whole_state_dict` fill them."""
    model.mesh, model.absent = mesh, {}
    for module in model.modules():
        if isinstance(getattr(module, "tp", None), Axis):
            module.tp = mesh.tp
    for name, shard in model.shards().items():
        path, _, leaf = name.rpartition(".")
        owner = model.get_submodule(path)
        parameter = owner._parameters.get(leaf)
        if isinstance(owner, Scaled) and parameter is not None:
            owner.placed(leaf, Across.of(parameter, shard, mesh.tp))
        if mesh.tp.rank and isinstance(shard, first):
            _without(model, owner, leaf)


def _without(model: LanguageModel, module: nn.Module, name: str) -> None:
    """Takes away a parameter, of which its shape and dtype stay known."""
    p = module._parameters.get(name)
    if p is not None:
        model.absent[id(module), name] = nn.Parameter(p.detach().to("meta"), p.requires_grad)
        module._parameters[name] = None
