"""Parameters that data-parallel ranks have shards of, through torch's fully_shard: block by block, as they run."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard as ShardedDim
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.parts import is_sharded
from hybridc.runtime.parallel.shards import split

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel

# emitted code writes into no result of a block
warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module \(FSDP(Embed|Head)\) returned a view")


def units(model: LanguageModel) -> list[list[nn.Module]]:
    """The embedding, the layers and the head, each once; those that share parameters are one unit, since these can be
    gathered but for all of them. In pipeline stages, units are a stage's, without blocks that several stages have."""
    if model.pipeline is None:
        return _units((model.embed, *model.layers, model.head))
    seen = Counter(block for stage in model.pipeline.modules for block in stage.blocks)
    stages = ([b for b in stage.blocks if seen[b] == 1] for stage in model.pipeline.modules)
    return [unit for blocks in stages for unit in _units(blocks)]


def _units(blocks: Iterable[nn.Module]) -> list[list[nn.Module]]:
    found: list[tuple[list[nn.Module], set[int]]] = []
    for block in dict.fromkeys(blocks):
        together, held = [block], {id(p) for p in block.parameters()}
        for other in [unit for unit in found if unit[1] & held]:
            found.remove(other)
            together, held = other[0] + together, other[1] | held
        found.append((together, held))
    return [together for together, _ in found]


class FullyShard:
    """Shards blocks over dp. Gradients are summed, in fp32; blocks compute in `dtype`, whose parameters stay fp32.

    Left as they are, for `Gradients` to sum: integers, parameters that compute in fp32 beside others that do not, those
    that several pipeline stages of one rank use, and those whose pieces tp ranks have copies of, where no dim but that
    of the pieces divides over dp. Parameters of pipeline stages stay gathered from forward to backward, and gradients
    are summed behind the last micro-batch.
    """

    def __init__(self, model: LanguageModel, mesh: Mesh, dtype: torch.dtype | None = None) -> None:
        assert mesh.device_mesh is not None
        self.mesh, self.device_mesh = mesh, mesh.device_mesh["dp"]
        # ctx and caches pass through blocks as they are
        self.policy = MixedPrecisionPolicy(dtype, dtype and torch.float32, cast_forward_inputs=False)
        model.computes_in = dtype
        self.ignored = {p for p in model.parameters() if not p.is_floating_point()}
        if dtype is not None:
            self.ignored |= {module._parameters[name] for module, name in model.fp32_parameters()} - {None}
        if model.pipeline is not None:
            stages = model.pipeline.stages
            self.ignored |= {p for name, p in model.named_parameters() if stages.first[name] in stages.repeated}
            model.pipeline.dtype = dtype
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
        if self.ignored:
            _mixed_optimizers()

    def __call__(self, *blocks: nn.Module) -> None:
        """Shards a unit of blocks, or the model or its stages, which come last and have nothing left to shard."""
        fully_shard(
            blocks[0] if len(blocks) == 1 else list(blocks),
            mesh=self.device_mesh,
            reshard_after_forward=self.mesh.pp.size == 1,
            shard_placement_fn=self._placement,
            mp_policy=self.policy,
            ignored_params=self.ignored,
        )
        for block in blocks:
            assert isinstance(block, FSDPModule)
            block.set_gradient_divide_factor(1.0)
            block.set_force_sum_reduction_for_comms(True)
            if hasattr(block, "loss"):
                _called(block, "loss")

    def _placement(self, p: nn.Parameter) -> ShardedDim | None:
        return ShardedDim(self.dims[id(p)]) if id(p) in self.dims else None


def _called(block: nn.Module, method: str) -> None:
    """Makes a method run as the module itself does, with the hooks that gather its parameters, those of a unit of
    several blocks too."""
    forward, other = block.forward, getattr(block, method)

    def either(*args: Any, run: Callable[..., Any] = forward) -> Any:
        return run(*args)

    def called(*args: Any) -> Any:
        return block(*args, run=other)

    block.forward = either
    setattr(block, method, called)


@cache
def _mixed_optimizers() -> None:
    """Lets torch's optimizers step sharded parameters and others in one group, which they cannot do together: one after
    the other, unless they are told how. `parameter_groups` of the model keeps them apart."""

    def before(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            if group.get("foreach", True) is None and not group.get("fused"):
                kinds = {is_sharded(p) for p in group["params"]}
                group["foreach"] = None if len(kinds) == 1 else False

    register_optimizer_step_pre_hook(before)
