"""Parameters of a rank and whole ones: a part is filled from the whole, and the whole is put together of parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.shards import Shard, first


@torch.no_grad()
def fill_part(parameter: Tensor, fill: Callable[[Tensor], object], shard: Shard | None, mesh: Mesh) -> None:
    """Fills a rank's part of a parameter with what `fill` writes into the whole one, so that its numbers are the same
    on every mesh."""
    if (shard is None or mesh.tp.size == 1) and not isinstance(parameter, DTensor):
        fill(parameter)
        return
    local = tuple(parameter.shape)
    shape = local if shard is None else shard.shape(local, mesh.tp.size)
    whole = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
    fill(whole)
    copy_part(parameter, whole, shard, mesh)


@torch.no_grad()
def copy_part(parameter: Tensor, whole: Tensor, shard: Shard | None, mesh: Mesh) -> None:
    """Copies a rank's part of a whole tensor into its parameter."""
    part = whole if shard is None else shard.take(whole, mesh.tp.rank, mesh.tp.size)
    part = part.to(parameter.device, parameter.dtype)
    if isinstance(parameter, DTensor):
        # every rank has the whole: nothing is sent
        part = distribute_tensor(part, parameter.device_mesh, parameter.placements, src_data_rank=None)
    parameter.copy_(part)


@torch.no_grad()
def whole_tensor(part: Tensor, shard: Shard | None, mesh: Mesh) -> Tensor:
    """The whole tensor, of the parts of all ranks; each of them calls it, but for what the first rank alone has."""
    if isinstance(part, DTensor):
        part = part.full_tensor()
    if shard is None or isinstance(shard, first) or mesh.tp.size == 1:
        return part
    return shard.join(mesh.tp.gathered(part))
