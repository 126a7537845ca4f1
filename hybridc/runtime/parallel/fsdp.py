"""Parameters that data-parallel ranks have shards of, through torch's fully_shard: block by block, as they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import Shard as ShardedDim

from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.shards import split

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel


def units(model: LanguageModel) -> list[list[nn.Module]]:
    """The embedding, the layers and the head, each once; those that share parameters are one unit, since these can be
    gathered but for all of them."""
    found: list[tuple[list[nn.Module], set[int]]] = []
    for block in dict.fromkeys((model.embed, *model.layers, model.head)):
        if block is None:
            continue  # another pipeline stage has it
        blocks, held = [block], {id(p) for p in block.parameters()}
        for other in [unit for unit in found if unit[1] & held]:
            found.remove(other)
            blocks, held = other[0] + blocks, other[1] | held
        found.append((blocks, held))
    return [blocks for blocks, _ in found]


class FullyShard:
    """Shards blocks over dp. Gradients are summed, in fp32; blocks compute in `dtype`, whose parameters stay fp32.

    Left as they are, for `Gradients` to sum: integers, parameters that compute in fp32 beside others that do not, and
    those whose pieces tp ranks have copies of, where no dim but that of the pieces divides over dp.
    """

    def __init__(self, model: LanguageModel, mesh: Mesh, dtype: torch.dtype | None = None) -> None:
        assert mesh.device_mesh is not None
        self.mesh, self.device_mesh = mesh, mesh.device_mesh["dp"]
        # ctx and caches pass through blocks as they are
        self.policy = MixedPrecisionPolicy(dtype, dtype and torch.float32, cast_forward_inputs=False)
        self.ignored = {p for p in model.parameters() if not p.is_floating_point()}
        if dtype is not None:
            self.ignored |= {module._parameters[name] for module, name in model.fp32_parameters()} - {None}
        self.dims: dict[int, int] = {}
        shards = model.shards() if mesh.tp.size > 1 else {}
        for name, p in model.named_parameters():
            shard = shards.get(name)
            if not isinstance(shard, split) or not shard.copied:
                continue
            dims = [n for n in range(p.dim()) if n != shard.dim and p.shape[n] % mesh.dp.size == 0]
            if dims:
                self.dims[id(p)] = dims[0]
            else:
                self.ignored.add(p)

    def __call__(self, *blocks: nn.Module) -> None:
        """Shards a unit of blocks, or the model, which comes last and has nothing left to shard."""
        fully_shard(
            blocks[0] if len(blocks) == 1 else list(blocks),
            mesh=self.device_mesh,
            reshard_after_forward=True,
            shard_placement_fn=self._placement,
            mp_policy=self.policy,
            ignored_params=self.ignored,
        )
        for block in blocks:
            assert isinstance(block, FSDPModule)
            block.set_gradient_divide_factor(1.0)
            block.set_force_sum_reduction_for_comms(True)
            for method in ("loss", "stage"):
                if hasattr(block, method):
                    register_fsdp_forward_method(block, method)

    def _placement(self, p: nn.Parameter) -> ShardedDim | None:
        return ShardedDim(self.dims[id(p)]) if id(p) in self.dims else None
