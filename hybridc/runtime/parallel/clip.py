"""The norm of a model's gradients over all ranks, each number counted once, and clipping by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hybridc.runtime.parallel.parts import is_sharded, local

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel


@torch.no_grad()
def grad_norm(model: LanguageModel) -> Tensor:
    """The 2-norm of all gradients, as of the serial model's, summed in fp64. Every rank calls it."""
    mesh = model.mesh
    shards = model.shards() if mesh.tp.size > 1 else {}
    squares = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)
    for name, p in model.named_parameters():
        if p.grad is None or (mesh.dp.rank and not is_sharded(p.grad)):
            continue
        if model.pipeline is not None and not model.pipeline.stages.owned(name):
            continue
        shard, grad = shards.get(name), local(p.grad)
        if shard is not None:
            owned = shard.owned(grad, mesh.tp.rank, mesh.tp.size)
        else:
            owned = [grad] if mesh.tp.rank == 0 else []
        for piece in owned:
            squares += torch.linalg.vector_norm(piece, dtype=torch.float64).square()
    for axis in (mesh.dp, mesh.tp, mesh.pp):
        squares = axis.summed(squares)
    return squares.sqrt().float()


@torch.no_grad()
def clip_grad_norm(model: LanguageModel, max_norm: float) -> Tensor:
    """Scales gradients so that their norm is at most `max_norm`, as torch's `clip_grad_norm_` does, and returns what it
    was. Every rank calls it."""
    norm = grad_norm(model)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        if p.grad is not None:
            local(p.grad).mul_(factor.to(p.device))
    return norm
