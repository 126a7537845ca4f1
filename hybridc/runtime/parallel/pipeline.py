"""A model in pipeline stages: micro-batches run through torch's schedules, whatever their lengths.

What goes from stage to stage is the stream, flattened to tokens and filled up to the step's longest micro-batch, since
torch receives into buffers of one shape; the embedding's result where layers read it; and the sums that routers' losses
are made of, through which these losses' gradients come back to the layers of all stages. Documents, positions and masks
do not travel: every rank of a pipeline has the micro-batches, and makes what its layers need of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.nn import functional as F

from hybridc.runtime.context import Context, Output, RouterLosses
from hybridc.runtime.errors import UsageError
from hybridc.runtime.ops.losses import RouterSums
from hybridc.runtime.parallel.memory import device_of
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.stages import Stages
from hybridc.runtime.parallel.steps import StepResult, idle_batch, plan, share, summed

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel

ROUND = 256
"""Lengths are filled up to a multiple of this, so that steps whose longest micro-batches differ a little share their
buffers."""

SPLITS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""Whether torch splits a stage's backward right: before, weights that are used twice counted double."""

KEPT = 4
"""Schedules that are kept with their buffers."""


class Stage(nn.Module):
    """The layers of one stage, which torch calls for each micro-batch. Its blocks are the model's own."""

    def __init__(self, pipeline: Pipeline, index: int) -> None:
        super().__init__()
        model, count = pipeline.model, len(pipeline.stages.ends)
        self.__dict__["pipeline"] = pipeline  # which is no part of it
        self.index, self.last = index, index == count - 1
        self.layers = pipeline.stages.layers(index)
        blocks = [*([model.embed] if index == 0 else []), *(model.layers[n] for n in self.layers)]
        self.blocks = nn.ModuleList(dict.fromkeys([*blocks, *([model.head] if self.last else [])]))

    def forward(self, *received: Tensor, index: Tensor) -> Any:
        """What the stage before sends -> what goes to the next one, or the micro-batch's share of the loss."""
        pipeline: Pipeline = self.__dict__["pipeline"]
        run = pipeline.running[int(index)]
        stream = pipeline.arrived(run, received)
        made = pipeline.model.stage(self.layers, run.ctx, *stream)
        run.counts[self.index] = run.ctx.take_tokens_per_expert()
        if not self.last:
            return pipeline.sent(run, made)
        run.out = pipeline.model.output(run.ctx, made[0], run.labels)
        return share(run.out, pipeline.rounds, pipeline.targets)


class _Arrived(torch.autograd.Function):
    """Values as they are. Each has a gradient, zeros where a stage does not use it: the one before waits for it."""

    @staticmethod
    def forward(ctx: Any, *values: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.view_as(t) for t in values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads


class _Run:
    """One micro-batch of a step on this rank."""

    def __init__(self, batch: Mapping[str, Any], mesh: Mesh) -> None:
        given = {name: batch.get(name) for name in ("attention_mask", "seq", "positions")}
        self.ctx = Context(batch["input_ids"], **given, mesh=mesh)
        self.labels = batch["labels"]
        rows, length = self.ctx.input_ids.shape
        # a rank's part of the tokens
        self.shape = (rows, -(-length // mesh.tp.size))
        self.counts: dict[int, list[Tensor]] = {}
        self.out: Output | None = None


class Pipeline:
    """Runs a model's stages on this rank.

    `width` is the stream's, `x0` says whether layers read the embedding, `routers` are the kinds of routers whose
    losses are part of the loss.
    """

    def __init__(
        self,
        model: LanguageModel,
        stages: Stages,
        width: int,
        *,
        x0: bool = False,
        routers: Sequence[RouterLosses] = (),
    ) -> None:
        self.model, self.stages, self.width, self.routers = model, stages, width, tuple(routers)
        self.streams = 2 if x0 else 1
        self.modules = [Stage(self, index) for index in stages.mine]
        self.running: list[_Run] = []
        self.rounds, self.targets = 0, 0
        self.dtype: torch.dtype | None = None
        """That of the stream, where it is not that of the parameters."""
        self._length = 0
        self._schedules: dict[tuple[object, ...], Any] = {}
        self._layout: list[list[tuple[int, list[int]]]] = []

    def step(self, micro_batches: Sequence[Mapping[str, Any]]) -> StepResult:
        """Forward and backward of the micro-batches; see `LanguageModel.step`."""
        model, mesh = self.model, self.model.mesh
        self.rounds, self.targets = plan(model, micro_batches)
        self._check(self.rounds)
        idle = [_Run(idle_batch(mesh), mesh.idling()) for _ in range(self.rounds - len(micro_batches))]
        self.running = [*(_Run(batch, mesh) for batch in micro_batches), *idle]
        longest = max(run.shape[0] * run.shape[1] for run in self.running)
        self._length = -(-longest // ROUND) * ROUND
        index = torch.arange(self.rounds)
        schedule = self._schedule()
        with self._kept():
            if model.gradients is not None:
                model.gradients.expect(self._backwards())
            target = index if any(stage.last for stage in self.modules) else None
            try:
                schedule.step(index=index, target=target, return_outputs=False)
            except BaseException:
                self._schedules.clear()  # what one that was interrupted holds is of no use
                raise
            if model.gradients is not None:
                model.gradients.finish()
            self.stages.sum_gradients(model)
        result = self._result()
        self.running = []
        return result

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Adds gradients from before to those of the step: they have been summed, and torch clears those of modules
        that FSDP has where a schedule runs first."""
        before = [(name, p.grad) for name, p in self.model.named_parameters() if p.grad is not None]
        self.model.zero_grad()
        try:
            yield
        finally:
            named = dict(self.model.named_parameters())
            for name, grad in before:
                p = named[name]
                p.grad = grad if p.grad is None else grad.add_(p.grad)

    # --- what travels ----------------------------------------------------------------------------------------------

    def arrived(self, run: _Run, received: Sequence[Tensor]) -> list[Tensor]:
        """The stream of a micro-batch, of what the stage before has sent, if there is one; the routers' sums go where
        its layers add theirs."""
        run.ctx.router_sums = {}
        if not received:
            return []
        values = _Arrived.apply(*received)
        for kind, part in zip(self.routers, values[-1].split(self._sizes()), strict=True) if self.routers else ():
            run.ctx.add_router_sums(kind, RouterSums.unpacked(part))
        tokens = run.shape[0] * run.shape[1]
        return [t[:tokens].view(*run.shape, self.width) for t in values[: self.streams]]

    def sent(self, run: _Run, stream: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What goes to the next stage, all of it with a gradient, and none a view, which torch cannot detach."""
        out = []
        for t in stream:
            flat = t.reshape(-1, self.width).to(self._dtype())
            out.append(F.pad(flat, (0, 0, 0, self._length - flat.shape[0])))
        if self.routers:
            sums = run.ctx.router_sums
            parts = [
                sums[kind].packed() if kind in sums else out[0].new_zeros(size, dtype=torch.float32)
                for kind, size in zip(self.routers, self._sizes(), strict=True)
            ]
            out.append(torch.cat(parts))
        return tuple(t if t.requires_grad else t.requires_grad_(torch.is_grad_enabled()) for t in out)

    def _sizes(self) -> list[int]:
        return [2 * kind.experts + 2 for kind in self.routers]

    def _dtype(self) -> torch.dtype:
        if self.dtype is not None:
            return self.dtype
        kept = {id(module._parameters[name]) for module, name in self.model.fp32_parameters()}
        plain = (p.dtype for p in self.model.parameters() if id(p) not in kept and p.is_floating_point())
        return next(plain, torch.float32)

    def _boundary(self) -> tuple[Tensor, ...]:
        """What goes over the border of two stages, without numbers."""
        stream = [
            torch.empty(self._length, self.width, dtype=self._dtype(), device="meta") for _ in range(self.streams)
        ]
        sums = [torch.empty(sum(self._sizes()), device="meta")] if self.routers else []
        return tuple(t.requires_grad_() for t in (*stream, *sums))

    # --- schedules -------------------------------------------------------------------------------------------------

    def _schedule(self) -> Any:
        """torch's schedule for the step's number of micro-batches and length; the last few are kept."""
        key = (self.rounds, self._length, self._dtype())
        made = self._schedules.pop(key, None) or self._make()
        self._schedules[key] = made
        for old in list(self._schedules)[:-KEPT]:
            del self._schedules[old]
        return made

    def _make(self) -> Any:
        count, device = len(self.stages.ends), device_of(self.model.mesh)
        border, loss = self._boundary(), torch.empty((), device="meta").requires_grad_()
        # torch's own split of inputs' and weights' gradients is right from 2.13 on; else W has nothing left to do
        whole = self.stages.schedule in ("zero_bubble", "zbv") and not SPLITS
        stages = [
            PipelineStage(
                module,
                module.index,
                count,
                device,
                input_args=border if module.index else (),
                output_args=(loss,) if module.last else border,
                group=self.stages.axis.group,
                dw_builder=_nothing if whole else None,
            )
            for module in self.modules
        ]
        kind: Any = SCHEDULES[self.stages.schedule]
        given = stages[0] if kind is Schedule1F1B else stages
        return kind(given, self.rounds, loss_fn=_loss_itself, scale_grads=False)

    def _check(self, rounds: int) -> None:
        """Raises UsageError, on all ranks, for a number of micro-batches that the schedule cannot take."""
        ranks, name = self.stages.axis.size, self.stages.schedule
        if name == "1f1b" and rounds < ranks:
            raise UsageError(f"{rounds} micro-batches for {ranks} stages", f"give `step` {ranks} or more")
        turns = max(1, rounds // ranks)
        if name in ("interleaved", "zero_bubble") and rounds % turns:
            raise UsageError(
                f"{rounds} micro-batches do not divide over the {turns} turns that {ranks} ranks make under {name}",
                f"give `step` a multiple of {ranks}",
            )

    def _backwards(self) -> int:
        """How many gradients each parameter gets; more than there are where stages on this rank share parameters, or
        where weights' gradients come without hooks: then all are summed at the end."""
        held = [id(p) for stage in self.modules for p in stage.parameters()]
        apart = len(set(held)) == len(held) and self.stages.schedule in ("1f1b", "interleaved") and self.rounds > 1
        return self.rounds if apart else 2 * len(self.modules) * self.rounds

    # --- the result ------------------------------------------------------------------------------------------------

    def _result(self) -> StepResult:
        """The step's losses and statistics, known on all ranks: one vector is summed over the stages."""
        mesh, axis = self.model.mesh, self.stages.axis
        counts = {
            stage.index: [torch.stack(layer).sum(0) for layer in zip(*self._counted(stage.index), strict=True)]
            for stage in self.modules
        }
        done = [run.out for run in self.running if run.out is not None]
        last = summed(done, self.targets) if done else None
        names = sorted(last.aux) if last is not None else []
        if not self._layout:
            mine = (names, [(index, [len(c) for c in layers]) for index, layers in counts.items()])
            found: list[Any] = [None] * axis.size
            distributed.all_gather_object(found, mine, group=axis.group)
            self._layout = found
        names = max((names for names, _ in self._layout), key=len)
        flat = torch.zeros(2 + len(names), dtype=torch.float64, device=mesh.device)
        if last is not None:
            values = [last.loss, last.ce_loss, *(last.aux[name] for name in names)]
            flat = torch.stack([torch.as_tensor(v, device=mesh.device).double() for v in values])
        pieces = [flat]
        sizes = dict(pair for _, held in self._layout for pair in held)
        for index in sorted(sizes):
            here = counts.get(index)
            pieces += [here[n].double() if here else flat.new_zeros(size) for n, size in enumerate(sizes[index])]
        whole = axis.summed(torch.cat(pieces))
        loss, ce_loss, *aux = whole[: 2 + len(names)].float().unbind()
        made: dict[str, Any] = dict(zip(names, aux, strict=True))
        if any(sizes.values()):
            parts = whole[2 + len(names) :].split([n for index in sorted(sizes) for n in sizes[index]])
            made["tokens_per_expert"] = [mesh.dp.summed(part).long() for part in parts]
        return StepResult(loss, ce_loss, self.targets, made)

    def _counted(self, index: int) -> list[list[Tensor]]:
        """Tokens per expert of a stage's layers, for each micro-batch that counts."""
        return [[c * (0.0 if run.ctx.mesh.idle else 1.0) for c in run.counts[index]] for run in self.running]


SCHEDULES = {
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero_bubble": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
}


def pipeline(
    model: LanguageModel,
    mesh: Mesh,
    ends: Sequence[int],
    schedule: str,
    *,
    width: int,
    x0: bool = False,
    routers: Sequence[RouterLosses] = (),
) -> None:
    """Leaves the model the stages that this rank has, each the layers up to one of `ends`, and makes what runs them."""
    stages = Stages(model, mesh, ends, schedule)
    stages.keep(model)
    model.pipeline = Pipeline(model, stages, width, x0=x0, routers=routers)


def _nothing() -> Callable[..., None]:
    return lambda: None


def _loss_itself(loss: Tensor, target: Tensor) -> Tensor:
    return loss
