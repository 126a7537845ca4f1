"""One step's forwards and backwards over micro-batches, whose loss and gradients are those of all tokens at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hybridc.runtime.context import Context, Output
from hybridc.runtime.errors import UsageError
from hybridc.runtime.parallel.agree import everywhere, mark_of, named
from hybridc.runtime.parallel.mesh import Mesh

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel

Batch = Mapping[str, Any]
"""Arguments of a forward, `labels` among them."""


@dataclass
class StepResult:
    """A step's losses over all ranks and micro-batches, detached; `targets` is how many labels `ce_loss` is the mean
    over, `aux` the routers' losses, as means over micro-batches, and their `tokens_per_expert`, as sums."""

    loss: Tensor
    ce_loss: Tensor
    targets: int
    aux: dict[str, Any] = field(default_factory=dict)


def step(model: LanguageModel, micro_batches: Sequence[Batch]) -> StepResult:
    """Forward and backward of this data-parallel rank's micro-batches; see `LanguageModel.step`."""
    rounds, targets = plan(model, micro_batches)
    done = []
    for n in range(rounds):
        with nullcontext() if n == rounds - 1 else model.no_sync():
            done.append(run(model, micro_batches[n] if n < len(micro_batches) else None, rounds, targets))
    return summed(done, targets)


def plan(model: LanguageModel, micro_batches: Sequence[Batch]) -> tuple[int, int]:
    """How many rounds all ranks make, and how many targets they have between them. Raises UsageError on every rank
    where one cannot use its micro-batches, or those of one tensor-parallel group differ."""
    mesh = model.mesh
    error: UsageError | None = None
    try:
        mine = [len(micro_batches), sum(count(batch) for batch in micro_batches)]
        mine.append(contents(micro_batches) if mesh.device_mesh is not None else 0)
    except UsageError as raised:
        error, mine = raised, [-1, -1, -1]
    found, ranks = [mine], [0]
    if mesh.device_mesh is not None:
        found, ranks = everywhere(mine, mesh.device_mesh), mesh.device_mesh.mesh.flatten().tolist()
    if error is not None:
        raise error
    if others := [rank for rank, (n, *_) in zip(ranks, found, strict=True) if n < 0]:
        raise UsageError(f"{named(others)} cannot use the micro-batches given there", "see what is said of them there")
    firsts: dict[int, int] = {}
    for n, other in enumerate(found):
        at = firsts.setdefault(mesh.dp_of(n), n)
        if other != (first := found[at]):
            what = "other tokens" if other[:2] == first[:2] else f"{other[0]} micro-batches with {other[1]} targets"
            raise UsageError(
                f"rank {ranks[n]} has {what}, and rank {ranks[at]} {first[0]} with {first[1]}",
                "give ranks that differ along tp or pp alone the same micro-batches",
            )
    rounds = max(n for n, *_ in found)
    if rounds == 0:
        raise UsageError("no rank has a micro-batch", "give `step` one or more")
    return rounds, sum(found[n][1] for n in firsts.values())


def contents(micro_batches: Sequence[Batch]) -> int:
    """A number that tells micro-batches apart."""
    total = torch.zeros(5, dtype=torch.int64)
    for batch in micro_batches:
        seq, device = batch.get("seq"), batch["input_ids"].device
        parts = (batch["input_ids"], batch["labels"], batch.get("attention_mask"), batch.get("positions"))
        for part in (*parts, None if seq is None else seq.offsets):
            total = 31 * total.to(device) + mark_of(part, device)
    digits: list[int] = total.tolist()
    return sum(17**n * digit for n, digit in enumerate(digits)) % 2**62


def count(batch: Batch) -> int:
    """How many targets a micro-batch has."""
    if batch.get("labels") is None:
        raise UsageError("a micro-batch has no labels", "give input_ids and labels")
    given = {name: batch.get(name) for name in ("attention_mask", "seq", "positions")}
    return int((Context(batch["input_ids"], **given).targets(batch["labels"]) != -100).sum())


def run(model: LanguageModel, batch: Batch | None, rounds: int, targets: int) -> Output:
    """Forward and backward of one micro-batch; without one, this rank only does what others wait for."""
    mesh = model.mesh
    if batch is None:
        batch, model.mesh = idle_batch(mesh), mesh.idling()
    try:
        out: Output = model(**batch)
    finally:
        model.mesh = mesh
    share(out, rounds, targets).backward()
    return out


def idle_batch(mesh: Mesh) -> Batch:
    """What a rank runs whose micro-batches are over, on an idling mesh."""
    ids = torch.zeros(1, 1, dtype=torch.int64, device=mesh.device)
    return {"input_ids": ids, "labels": torch.full_like(ids, -100)}


def share(out: Output, rounds: int, targets: int) -> Tensor:
    """What a micro-batch adds to the step's loss: cross entropy by its share of the targets, routers' losses by that of
    the micro-batches. Leaves the output with detached losses that add up to the step's."""
    assert out.ce_loss is not None and out.targets is not None
    ce_loss = out.ce_loss * (out.targets / max(targets, 1))
    loss: Tensor = ce_loss + out.router_loss / rounds
    out.loss, out.ce_loss = loss.detach(), ce_loss.detach()
    return loss


def summed(done: Sequence[Output], targets: int) -> StepResult:
    """The step's result, of what `run` gave."""
    loss = torch.stack([out.loss for out in done if out.loss is not None]).sum()
    ce_loss = torch.stack([out.ce_loss for out in done if out.ce_loss is not None]).sum()
    aux: dict[str, Any] = {}
    for name in done[0].aux:
        if name == "tokens_per_expert":
            layers = zip(*(out.aux[name] for out in done), strict=True)
            aux[name] = [torch.stack(counts).sum(0) for counts in layers]
        else:
            aux[name] = torch.stack([out.aux[name].detach() for out in done]).mean()
    return StepResult(loss, ce_loss, targets, aux)
