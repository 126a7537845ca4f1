"""The base of emitted models: initialisation by name, parameters that stay fp32, caches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hybridc.runtime.cache import Cache
from hybridc.runtime.context import Context, Output
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kept import Kept
from hybridc.runtime.parallel import clip, state, steps
from hybridc.runtime.parallel.gradients import Gradients
from hybridc.runtime.parallel.mesh import SERIAL, Mesh
from hybridc.runtime.parallel.parts import fill_part
from hybridc.runtime.parallel.shards import Shard
from hybridc.runtime.versions import version_of

if TYPE_CHECKING:
    from hybridc.runtime.parallel.pipeline import Pipeline

__all__ = ["Context", "LanguageModel", "Output"]


class LanguageModel(Kept):
    """What an emitted `Model` inherits. It has `embed`, `layers` and `head`."""

    embed: nn.Module
    layers: nn.ModuleList
    head: nn.Module
    MESH: Mapping[str, int] = {}
    """Axes of the mesh that it is emitted for, with their sizes."""
    _mesh: Mesh | None = None
    computes_in: torch.dtype | None = None
    """The dtype of values, where it is not that of the parameters."""
    gradients: Gradients | None = None
    """What sums gradients over the mesh."""
    absent: Mapping[tuple[int, str], nn.Parameter] = {}
    """Parameters, on the meta device, that only the first tensor-parallel rank has: by id of the module, and name."""
    elsewhere: Collection[str] = frozenset()
    """Names in whole state dicts that other pipeline stages have."""
    pipeline: Pipeline | None = None
    """What runs the stages of a model that no rank has all layers of."""
    INIT: Mapping[str, Callable[..., object]] = {}
    """How parameters start whose first name another stage has; emitted classes have tables for all others."""
    first_names: Mapping[str, str] = {}
    """Those parameters' first names."""

    @property
    def mesh(self) -> Mesh:
        """Where this rank is. Raises UsageError for a model of a mesh that has not been put on it."""
        if self._mesh is None:
            if self.MESH:
                shown = ", ".join(f"{axis} = {size}" for axis, size in self.MESH.items())
                raise UsageError(
                    f"the model is one rank's of {shown}", "put it on its mesh with `shard` of its package"
                )
            return SERIAL
        return self._mesh

    @mesh.setter
    def mesh(self, mesh: Mesh) -> None:
        self._mesh = mesh

    def shards(self) -> dict[str, Shard]:
        """Which part of each parameter a tensor-parallel rank has, by the parameter's name; those that are left out are
        whole, and so are their gradients."""
        found = {}
        for prefix, module in self.named_modules():
            for path, shard in getattr(type(module), "SHARDS", {}).items():
                found[f"{prefix}.{path}" if prefix else path] = shard
        return found

    def forward(self, *args: object, **kwargs: object) -> Any:
        """Emitted models have their own, but for those in pipeline stages, which `step` runs."""
        raise UsageError(
            f"a forward of one of {self.mesh.pp.size} pipeline stages, none of which has all layers",
            "train with model.step(micro_batches), which runs them all",
        )

    @torch.no_grad()
    def init_weights(self, seed: int = 0, *, wanted: Callable[[Tensor], bool] = lambda _: True) -> None:
        """Fills every parameter, and each buffer that is named there, as its class's `INIT` says.

        Numbers come from a generator seeded by `seed` and the parameter's full name: so no other parameter, no mesh and
        no order changes them. A shared one counts by its first name. Those that are not `wanted` stay as they are.
        """
        done: set[int] = set()
        shards = self.shards() if self.mesh.tp.size > 1 else {}
        for name, fill in self.fills():
            owner, _, leaf = name.rpartition(".")
            holder = self.get_submodule(owner)
            parameter = holder._parameters.get(leaf, holder._buffers.get(leaf))
            if parameter is None or id(parameter) in done:
                continue
            done.add(id(parameter))
            if not wanted(parameter):
                continue
            digest = hashlib.sha256(f"{seed}:{self.first_names.get(name, name)}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            fill_part(parameter, partial(fill, generator=generator), shards.get(name), self.mesh)

    def fills(self) -> Iterator[tuple[str, Callable[..., object]]]:
        """Names of parameters and buffers with what fills them, as `INIT` of their classes says."""
        for prefix, module in self.named_modules():
            for path, fill in getattr(module, "INIT", {}).items():
                yield f"{prefix}.{path}" if prefix else path, fill

    def no_sync(self) -> AbstractContextManager[None]:
        """Where gradients are only accumulated on each rank, and sent by the next backward outside."""
        return nullcontext() if self.gradients is None else self.gradients.no_sync()

    def step(self, micro_batches: Sequence[Mapping[str, Any]]) -> steps.StepResult:
        """Forward and backward of this data-parallel rank's micro-batches, each of them the arguments of a forward with
        `labels`. Loss and gradients are those of all ranks' tokens at once, auxiliary losses means over micro-batches;
        ranks may have fewer than others, or none."""
        return steps.step(self, micro_batches) if self.pipeline is None else self.pipeline.step(micro_batches)

    def whole_state_dict(self) -> dict[str, Tensor]:
        """Copies of the whole model's tensors, by the serial model's names, on every rank. Every rank calls it."""
        return state.whole_state_dict(self)

    def load_whole_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True) -> None:
        """Takes this rank's parts of what `whole_state_dict` of any mesh gave."""
        state.load_whole_state_dict(self, state_dict, strict=strict)

    def whole_gradients(self) -> dict[str, Tensor]:
        """As `whole_state_dict`, of gradients."""
        return state.whole_gradients(self)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for an optimizer: parameters that ranks have shards of apart from others, which steps take one by one
        where a group has both."""
        return state.parameter_groups(self)

    def grad_norm(self) -> Tensor:
        """The norm of the whole model's gradients. Every rank calls it."""
        return clip.grad_norm(self)

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """As torch's, over the whole model: returns the norm before. Every rank calls it."""
        return clip.clip_grad_norm(self, max_norm)

    @property
    def weights_version(self) -> int:
        """A number that changes whenever a parameter is written in place or replaced, or an optimizer makes a step (not
        through `p.data.copy_`, which torch itself does not count)."""
        seen = (
            (id(p), version_of(p)) for module in self.modules() for p in module._parameters.values() if p is not None
        )
        return hash(tuple(seen))

    def new_cache(self, batch: int, max_len: int) -> Cache:
        """An empty cache for `batch` sequences of up to `max_len` tokens each, on the parameters' devices; keys and
        values in the dtype of the layer that makes them. Raises UsageError for sizes under 1."""
        if batch < 1 or max_len < 1:
            raise UsageError(f"a cache of {batch} rows of {max_len} tokens", "give a batch and max_len of 1 or more")
        layers: list[dict[str, Any]] = []
        kept = {id(module._parameters[name]) for module, name in self.fp32_parameters()}
        for block in self.layers:
            entries = {}
            for path, module in block.named_modules():
                if path and hasattr(module, "new_state"):
                    # a layer of packed weights, which are bytes, makes what it is given: the embedding's dtype
                    plain = (p for p in module.parameters() if id(p) not in kept and p.is_floating_point())
                    dtype = self.computes_in or next(plain, next(self.parameters())).dtype
                    device = next(module.parameters()).device
                    entries[path] = module.new_state(batch, max_len, device, dtype)
            layers.append(entries)
        return Cache(layers, batch, max_len, lambda: self.weights_version)
