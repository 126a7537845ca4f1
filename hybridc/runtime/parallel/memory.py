"""Memory for what a rank has of a model that was made without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hybridc.runtime.parallel.mesh import Mesh

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel


def materialise(model: LanguageModel, mesh: Mesh) -> None:
    """Puts a model that is on the meta device onto this rank's; `init_weights` or `load_whole_state_dict` fill it."""
    if any(p.is_meta for p in model.parameters()):
        model.to_empty(device=device_of(mesh))
        for buffer in model.buffers():
            buffer.zero_()


def device_of(mesh: Mesh) -> torch.device:
    """This rank's device."""
    kind = mesh.device
    return torch.device(kind.type, torch.accelerator.current_device_index()) if kind.type != "cpu" else kind
