"""Which layers of a model in pipeline stages this rank has, and what ranks have in common: parameters of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor

from hybridc.runtime.parallel.mesh import Mesh

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel


class Stages:
    """The stages of a model, each the layers up to one of `ends`, on the ranks of its mesh's `pp`.

    Under `zbv` the second half goes back over the ranks; else stages go round them. Made of the whole model, of which
    `keep` leaves this rank's. A parameter of several layers, or of both ends, has one name, the first; each rank that
    uses it has it. `shared` are the ranks of those that several have; `repeated` those that several stages of one rank
    use.
    """

    def __init__(self, model: LanguageModel, mesh: Mesh, ends: Sequence[int], schedule: str) -> None:
        self.mesh, self.axis, self.ends, self.schedule = mesh, mesh.pp, tuple(ends), schedule
        self.mine = [stage for stage in range(len(ends)) if self.rank_of(stage) == self.axis.rank]
        self.order = {name: n for n, name in enumerate(model.state_dict())}
        places: dict[int, list[str]] = {}
        for name, p in model.named_parameters(remove_duplicate=False):
            places.setdefault(id(p), []).append(name)
        self.first = {name: names[0] for names in places.values() for name in names}
        used = {names[0]: sorted({self.stage_of(n) for n in names}) for names in places.values()}
        ranks = {name: [self.rank_of(stage) for stage in stages] for name, stages in used.items()}
        self.repeated = {name for name, held in ranks.items() if len(set(held)) < len(held)}
        self.shared = {name: tuple(sorted(set(held))) for name, held in ranks.items() if len(set(held)) > 1}
        self.groups = {ranks: self._group(ranks) for ranks in sorted(set(self.shared.values()))}

    def rank_of(self, stage: int) -> int:
        """The rank that has a stage."""
        turn, at = divmod(stage, self.axis.size)
        return self.axis.size - 1 - at if self.schedule == "zbv" and turn % 2 else at

    def layers(self, stage: int) -> range:
        """The layers of a stage."""
        return range(self.ends[stage - 1] if stage else 0, self.ends[stage])

    def stage_of(self, name: str) -> int:
        """The stage whose layers a name in the whole model's state dict belongs to."""
        part, _, rest = name.partition(".")
        if part != "layers":
            return 0 if part == "embed" else len(self.ends) - 1
        layer = int(rest.partition(".")[0])
        return next(stage for stage, end in enumerate(self.ends) if layer < end)

    def holder(self, name: str) -> int:
        """The rank that has that stage."""
        return self.rank_of(self.stage_of(name))

    def owned(self, name: str) -> bool:
        """Whether a parameter of this rank is counted here, so that ranks count each once."""
        return self.holder(self.first[name]) == self.axis.rank

    def _group(self, ranks: tuple[int, ...]) -> ProcessGroup | None:
        """The group of these ranks of the axis, one at each place on the other axes. All ranks make all of them, in one
        order."""
        if ranks == tuple(range(self.axis.size)):
            return self.axis.group
        assert self.mesh.device_mesh is not None
        mine = None
        for line in lines(self.mesh):
            group = distributed.new_group([line[rank] for rank in ranks])
            if distributed.get_rank() in line and self.axis.rank in ranks:
                mine = group
        return mine

    def keep(self, model: LanguageModel) -> None:
        """Takes away what other ranks have. Names stay those of the whole model, and parameters whose first name is
        gone start as they would there."""
        fills = dict(model.fills())
        layers = {layer for stage in self.mine for layer in self.layers(stage)}
        gone: Any = None
        for layer in range(len(model.layers)):
            if layer not in layers:
                model.layers[layer] = gone
        if 0 not in self.mine:
            model.embed = gone
        if len(self.ends) - 1 not in self.mine:
            model.head = gone
        named = dict(model.named_parameters())
        model.first_names = {name: first for name in named if (first := self.first[name]) != name}
        there = dict(model.fills())
        model.INIT = {name: fills[first] for name, first in model.first_names.items() if name not in there}
        model.elsewhere = self.order.keys() - model.state_dict().keys()

    @torch.no_grad()
    def sum_gradients(self, model: LanguageModel) -> None:
        """Sums the gradients of parameters that several stages use over the ranks that have them."""
        named = dict(model.named_parameters())
        here = {self.first[name]: p for name, p in named.items()}
        for ranks, group in self.groups.items():
            if self.axis.rank not in ranks:
                continue
            kinds: dict[torch.dtype, list[Tensor]] = {}
            for name, holders in self.shared.items():
                p = here.get(name)  # none where another tensor-parallel rank alone has it
                if holders == ranks and p is not None and p.requires_grad:
                    kinds.setdefault(p.dtype, []).append(p)
            for parameters in kinds.values():
                for p in parameters:
                    if p.grad is None:
                        p.grad = torch.zeros_like(p)
                grads = [_local(p.grad) for p in parameters if p.grad is not None]
                flat = torch.cat([g.reshape(-1) for g in grads])
                distributed.all_reduce(flat, group=group)
                for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
                    grad.copy_(part.view(grad.shape))

    @torch.no_grad()
    def everywhere(self, named: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """What the ranks of the axis have by names of the whole model, in its order, sent to all of them one after the
        other; a name that several have comes from its holder, or else from the first."""
        mine = {name: (tuple(t.shape), t.dtype) for name, t in named.items()}
        found: list[dict[str, tuple[tuple[int, ...], torch.dtype]]] = [{} for _ in range(self.axis.size)]
        distributed.all_gather_object(found, mine, group=self.axis.group)
        sources: dict[str, int] = {}
        for rank in reversed(range(self.axis.size)):
            sources |= dict.fromkeys(found[rank], rank)
        device = next((t.device for t in named.values()), torch.device("cpu"))
        for name in sorted(sources, key=lambda name: self.order.get(name, len(self.order))):
            source = self.holder(name) if name in found[self.holder(name)] else sources[name]
            shape, dtype = found[source][name]
            sent = (
                named[name].contiguous() if source == self.axis.rank else torch.empty(shape, dtype=dtype, device=device)
            )
            distributed.broadcast(sent, group=self.axis.group, group_src=source)
            yield name, sent


def lines(mesh: Mesh) -> list[list[int]]:
    """The ranks of the world along `pp`, at each place on the other axes."""
    assert mesh.device_mesh is not None
    names = list(mesh.device_mesh.mesh_dim_names or ())
    ranks: list[list[int]] = mesh.device_mesh.mesh.movedim(names.index("pp"), -1).reshape(-1, mesh.pp.size).tolist()
    return ranks


def _local(t: Tensor) -> Tensor:
    """What this rank has of a tensor; writing into it writes into the tensor."""
    return t._local_tensor if isinstance(t, DTensor) else t
