"""Whole tensors of a model on a mesh, by the names that the serial model has for them: out of ranks' parts and into
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hybridc.runtime.errors import UsageError
from hybridc.runtime.parallel.parts import copy_part, is_fsdp, is_sharded, whole_shape, whole_tensor
from hybridc.runtime.parallel.shards import Shard

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel


@dataclass(frozen=True)
class Entry:
    """A parameter or persistent buffer. `tensor` is None where only the first tensor-parallel rank has one, whose shape
    and dtype `like` has in any case."""

    name: str
    tensor: Tensor | None
    like: Tensor
    shard: Shard | None
    key: tuple[int, str]


def entries(model: LanguageModel) -> Iterator[Entry]:
    """All that this rank's part of the model has, in the order of a state dict; shared ones as often as there."""
    for module in model.modules():
        if is_fsdp(module):
            module.reshard()  # type: ignore[operator]  # else an interrupted forward's copies would be seen
    shards: dict[tuple[int, str], Shard] = {}
    for module in model.modules():
        for path, shard in getattr(type(module), "SHARDS", {}).items():
            owner, _, leaf = path.rpartition(".")
            shards[id(module.get_submodule(owner)), leaf] = shard
    for prefix, module in model.named_modules(remove_duplicate=False):
        kept = {n: b for n, b in module._buffers.items() if n not in module._non_persistent_buffers_set}
        for leaf, tensor in (*module._parameters.items(), *kept.items()):
            place = id(module), leaf
            like = tensor if tensor is not None else model.absent.get(place)
            if like is not None:
                name = f"{prefix}.{leaf}" if prefix else leaf
                key = place if tensor is None else (id(tensor), "")
                yield Entry(name, tensor, like, shards.get(place), key)


@torch.no_grad()
def whole_state_dict(model: LanguageModel) -> dict[str, Tensor]:
    """Copies of all parameters and persistent buffers, whole, on every rank. Every rank calls it."""
    return _gathered(model, lambda t: t)


@torch.no_grad()
def whole_gradients(model: LanguageModel) -> dict[str, Tensor]:
    """Copies of all gradients, whole, on every rank; zeros where there is none. Every rank calls it."""
    return _gathered(model, lambda t: torch.zeros_like(t) if t.grad is None else t.grad, parameters=True)


def _gathered(
    model: LanguageModel, of: Callable[[Tensor], Tensor], *, parameters: bool = False
) -> dict[str, Tensor]:  # fmt: skip
    found: dict[str, Tensor] = {}
    made: dict[tuple[int, str], Tensor] = {}
    for entry in entries(model):
        if parameters and not isinstance(entry.like, nn.Parameter):
            continue
        if entry.key not in made:
            tensor = None if entry.tensor is None else of(entry.tensor).detach()
            made[entry.key] = whole_tensor(tensor, entry.like, entry.shard, model.mesh)
        found[entry.name] = made[entry.key]
    return found if model.pipeline is None else dict(model.pipeline.stages.everywhere(found))


def parameter_groups(model: LanguageModel) -> list[dict[str, Any]]:
    """The parameters that are sharded and those that are not, each if there are any."""
    parameters = list(model.parameters())
    kinds = ([p for p in parameters if is_sharded(p) == kind] for kind in (True, False))
    return [{"params": kind} for kind in kinds if kind]


@torch.no_grad()
def load_whole_state_dict(model: LanguageModel, state: Mapping[str, Tensor], *, strict: bool = True) -> None:
    """Takes this rank's parts of whole tensors; nothing is sent. Raises UsageError, before anything is written, for
    shapes that are not the model's and, if `strict`, for names that are missing or too many."""
    mine = list(entries(model))
    names = {entry.name for entry in mine}
    tp = model.mesh.tp
    wrong = []
    if strict:
        wrong += [f"{name} is missing" for name in sorted(names - state.keys())]
        wrong += [f"{name} is not the model's" for name in sorted(set(state) - names - model.elsewhere)]
    for entry in mine:
        if entry.name in state:
            shape, wanted = tuple(state[entry.name].shape), whole_shape(entry.like, entry.shard, tp.size)
            if shape != wanted:
                wrong.append(f"{entry.name} is {list(shape)} instead of {list(wanted)}")
    if wrong:
        more = f", and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise UsageError(", ".join(wrong[:5]) + more, "load the whole state dict of a model of the same spec")
    for entry in mine:
        if entry.tensor is not None and entry.name in state:
            copy_part(entry.tensor, state[entry.name], entry.shard, model.mesh)
