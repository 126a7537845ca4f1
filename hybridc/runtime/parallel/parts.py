"""Parameters of a rank and whole ones: a part is filled from the whole, and the whole is put together of parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, distributed, nn

from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.shards import Shard, first, whole
from hybridc.runtime.versions import written


def is_sharded(t: Tensor) -> bool:
    """Whether data-parallel ranks have shards of a tensor: it is a DTensor, whose module is slow to import."""
    return hasattr(t, "to_local")


def is_fsdp(module: nn.Module) -> bool:
    """Whether a module is one that fully_shard was called with."""
    return hasattr(module, "set_requires_gradient_sync")


@torch.no_grad()
def local(t: Tensor) -> Tensor:
    """What of a tensor this rank has; writing into it writes into the tensor."""
    mine: Tensor = t.to_local() if is_sharded(t) else t  # type: ignore[attr-defined]
    return mine


def whole_shape(part: Tensor, shard: Shard | None, ranks: int) -> tuple[int, ...]:
    """The shape of the whole tensor of a rank's part."""
    shape = tuple(part.shape)
    return shape if shard is None or ranks == 1 else shard.shape(shape, ranks)


@torch.no_grad()
def fill_part(parameter: Tensor, fill: Callable[[Tensor], object], shard: Shard | None, mesh: Mesh) -> None:
    """Fills a rank's part of a parameter with what `fill` writes into the whole one, so that its numbers are the same
    on every mesh."""
    if (shard is None or mesh.tp.size == 1) and not is_sharded(parameter):
        fill(parameter)
        return
    shape = whole_shape(parameter, shard, mesh.tp.size)
    filled = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
    fill(filled)
    copy_part(parameter, filled, shard, mesh)


@torch.no_grad()
def copy_part(parameter: Tensor, full: Tensor, shard: Shard | None, mesh: Mesh) -> None:
    """Copies a rank's part of a whole tensor into its parameter."""
    part = full if shard is None or mesh.tp.size == 1 else shard.take(full, mesh.tp.rank, mesh.tp.size)
    part = part.to(parameter.device, parameter.dtype)
    if is_sharded(parameter):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(parameter, DTensor)
        # every rank has the whole: nothing is sent
        part = distribute_tensor(part, parameter.device_mesh, parameter.placements, src_data_rank=None)
        written()  # the gathered parameter is another tensor, whose own version stays
    parameter.copy_(part)


@torch.no_grad()
def whole_tensor(part: Tensor | None, like: Tensor, shard: Shard | None, mesh: Mesh) -> Tensor:
    """A new tensor, the whole one, of the parts of all ranks, which all call it. `part` is None where the first rank
    alone has it, and is `like` that."""
    if part is not None and is_sharded(part):
        part = part.full_tensor()  # type: ignore[attr-defined]
    tp = mesh.tp
    if isinstance(shard, first) and tp.size > 1:
        # in float64, since a cast may have changed the dtype on the first rank alone
        sent = torch.empty(like.shape, dtype=torch.float64, device=mesh.device) if part is None else part.double()
        distributed.broadcast(sent.contiguous(), group=tp.group, group_src=0)
        return sent.to(like.dtype)
    assert part is not None
    if shard is None or isinstance(shard, whole) or tp.size == 1:
        return part.clone(memory_format=torch.contiguous_format)
    return shard.join(tp.gathered(part))
