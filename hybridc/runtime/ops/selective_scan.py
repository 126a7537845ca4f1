"""Mamba's scan: a diagonal state space per channel, in chunks of a parallel scan (Gu and Dao, 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hybridc.runtime.ops.chunks import Chunks

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context

CHUNK = 32
"""Tokens scanned at once: log2 of it passes over [B, CHUNK, D, N], which is what bounds the memory."""


def _scan_chunk(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """A chunk: u, dt [B, L, D], a [D, N], b, c [B, L, N], state [B, D, N] -> y [B, L, D] and the state behind it.

    Doubling scan over pairs (decay, added): products of decays only, so nothing overflows.
    """
    decay = (dt[..., None] * a).exp()
    added = (dt * u)[..., None] * b[:, :, None]
    added = torch.cat((torch.addcmul(added[:, :1], decay[:, :1], state[:, None]), added[:, 1:]), dim=1)
    step = 1
    while step < u.shape[1]:
        added = torch.cat((added[:, :step], torch.addcmul(added[:, step:], decay[:, step:], added[:, :-step])), dim=1)
        decay = torch.cat((decay[:, :step], decay[:, step:] * decay[:, :-step]), dim=1)
        step *= 2
    return (added @ c[..., None])[..., 0], added[:, -1]


def selective_scan_chunked(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunks: Chunks, initial: Tensor
) -> tuple[Tensor, Tensor]:
    """h_t = exp(dt_t a) h_{t-1} + dt_t b_t u_t, y_t = c_t h_t, for each channel; all fp32.

    u and dt [B, S, D], a [D, N] (negative), b and c [B, S, N], initial [documents, B, D, N] -> y [B, S, D] and the last
    state of each document. The backward recomputes each chunk from the state before it.
    """
    u, dt, b, c = (chunks.cut(t) for t in (u, dt, b, c))
    states = list(initial)
    outputs = []
    save = torch.is_grad_enabled()
    for n, document in enumerate(chunks.document):
        arguments = (u[:, n], dt[:, n], a, b[:, n], c[:, n], states[document])
        y, states[document] = (
            checkpoint(_scan_chunk, *arguments, use_reentrant=False) if save else _scan_chunk(*arguments)
        )  # fmt: skip
        outputs.append(y)
    last = torch.stack(states)
    if not outputs:
        return chunks.join(u), last
    return chunks.join(torch.stack(outputs, 1)), last


def selective_scan(
    u: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    ctx: Context,
    state: MambaState | None,
) -> Tensor:
    """The scan with its skip d u, over the context's documents, from and to the cache's state.

    u [B, S, D], dt [B, S, D] after softplus, a [D, N] negative, b and c [B, S, N], d [D] -> y [B, S, D] in u's dtype.
    """
    dtype = u.dtype
    u, dt, a, b, c = u.float(), dt.float(), a.float(), b.float(), c.float()
    if state is not None and ctx.borders is None and u.shape[1] == 1:
        y, new = _scan_chunk(u, dt, a, b, c, state.ssm)
        state.ssm.copy_(new.detach())
    else:
        plan: Chunks = ctx.plan(("chunks", CHUNK), lambda: Chunks.make(u.shape[1], ctx.borders, CHUNK, u.device))
        shape = (plan.count, u.shape[0], *a.shape)
        initial = u.new_zeros(shape) if state is None else state.ssm.reshape(shape)
        y, last = selective_scan_chunked(u, dt, a, b, c, plan, initial)
        if state is not None:
            state.ssm.copy_(last.detach().reshape(state.ssm.shape))
    return (y + u * d.float()).to(dtype)
