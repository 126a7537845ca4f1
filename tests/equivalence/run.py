"""One step of a case on its mesh and on one rank, and how far they are from each other."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh

import hybridc
from hybridc.runtime.context import PackedSeq
from tests.equivalence.cases import VOCAB, Case, size
from tests.equivalence.ranks import on_ranks

LOSS, GRADIENT = 1e-6, 1e-5
"""How far a loss may be off, of itself, and a gradient, of the largest number in it."""

Batch = dict[str, Any]


def batch(case: Case, micro: int, rank: int) -> Batch:
    """A micro-batch of one dp rank: as many tokens as any other's, in documents or rows of its own."""
    draw = random.Random(f"{case.seed}:{micro}:{rank}")
    length = max(2, case.length - 3 * micro)
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    ids = torch.randint(0, VOCAB, (case.rows, length), generator=generator)
    labels = ids.masked_fill(torch.rand(ids.shape, generator=generator) < 0.2, -100)
    made: Batch = {"input_ids": ids, "labels": labels}
    if case.batch == "padded":
        counts = torch.tensor([draw.randint(1, length) for _ in range(case.rows)])
        made["attention_mask"] = (torch.arange(length)[None] < counts[:, None]).long()
    if case.batch == "packed":
        total = case.rows * length
        made["seq"] = PackedSeq([0, *sorted(draw.sample(range(1, total), min(3, total - 1))), total])
    return made


def joined(parts: list[Batch]) -> Batch:
    """The micro-batches of all dp ranks as one."""
    made = {name: torch.cat([p[name] for p in parts]) for name in parts[0] if name != "seq"}
    if "seq" in parts[0]:
        offsets, start = [0], 0
        for part in parts:
            offsets += [start + n for n in part["seq"].offsets[1:]]
            start += part["input_ids"].numel()
        made["seq"] = PackedSeq(offsets)
    return made


@dataclass(frozen=True)
class Step:
    """What one step makes: the loss, the norm of all gradients, gradients and parameters by name."""

    loss: float
    norm: float
    gradients: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]


def serial(case: Case, spec: str = "", jitter: int = 0) -> Step:
    """The step on one rank; with `jitter` each parameter is up to a unit in its last place off."""
    net: Any = hybridc.compile(spec or case.spec).load(seed=case.seed)
    if jitter:
        generator = torch.Generator().manual_seed(jitter)
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1 + torch.randint(-1, 2, p.shape, generator=generator) * torch.finfo(p.dtype).eps)
    dp = size(case.axes.get("dp", "1"))
    loss = net.step([joined([batch(case, m, r) for r in range(dp)]) for m in range(case.micro_batches)]).loss
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in net.named_parameters()}
    norm = torch.linalg.vector_norm(torch.stack([g.double().norm() for g in gradients.values()]))
    return Step(float(loss), float(norm), gradients, {n: p.detach() for n, p in net.named_parameters()})


def meshed(case: Case, spec: str = "") -> Step:
    """The step on this rank of the case's mesh."""
    made = hybridc.compile(spec or case.spec, mesh=case.axes)
    net: Any = made.load(init=False)
    axes = {axis: size(form) for axis, form in case.mesh}
    device_mesh = init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    net = made.shard(net, device_mesh)
    net.init_weights(case.seed)
    parameters = net.whole_state_dict()
    rank = net.mesh.dp.rank
    loss = net.step([batch(case, m, rank) for m in range(case.micro_batches)]).loss
    return Step(float(loss), float(net.grad_norm()), net.whole_gradients(), parameters)


def rounding(case: Case, spec: str, want: Step) -> dict[str, float]:
    """How far rounding alone moves each gradient, of the largest number in it: a few times what a unit in the last
    place of the parameters does. Some gradients are next to nothing left over of large numbers."""
    moved: dict[str, float] = {}
    for jitter in (1, 2, 3):
        for name, gradient in serial(case, spec, jitter).gradients.items():
            scale = want.gradients[name].abs().max().clamp(min=1e-6)
            off = float((gradient - want.gradients[name]).abs().max() / scale)
            moved[name] = max(moved.get(name, 0.0), 4 * off)
    return moved


def differences(case: Case, spec: str = "", *, timeout: float = 120.0) -> list[str]:
    """What is not the same on the mesh: loss, norm of the gradients, gradients by name, parameters after init (bit for
    bit). A gradient that is off by no more than rounding moves it is the same. Raises RanksFailed where a rank does."""
    torch.set_num_threads(1)
    want = serial(case, spec)
    steps = on_ranks(case.ranks, meshed, case, spec, timeout=timeout)
    if not (found := _found(want, steps, {})):
        return []
    return _found(want, steps, rounding(case, spec, want)) if all("gradient of" in f for f in found) else found


def _found(want: Step, steps: list[Step], allowed: dict[str, float]) -> list[str]:
    found = []
    for rank, got in enumerate(steps):
        where = f"rank {rank}: "
        if abs(got.loss - want.loss) > LOSS * abs(want.loss):
            found.append(f"{where}loss {got.loss} for {want.loss}")
        if abs(got.norm - want.norm) > GRADIENT * want.norm:
            found.append(f"{where}gradient norm {got.norm} for {want.norm}")
        for name, gradient in want.gradients.items():
            if name not in got.gradients:
                found.append(f"{where}no gradient of {name}")
                continue
            off = float((got.gradients[name] - gradient).abs().max() / gradient.abs().max().clamp(min=1e-6))
            if not off <= max(GRADIENT, allowed.get(name, 0.0)):
                found.append(f"{where}gradient of {name} is off by {off:.1e}")
        for name, parameter in want.parameters.items():
            if name not in got.parameters or not torch.equal(got.parameters[name], parameter):
                found.append(f"{where}parameter {name} starts otherwise")
    return found
