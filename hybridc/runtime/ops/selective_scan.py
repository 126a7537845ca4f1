"""Mamba's scan: a diagonal state space per channel, all chunks of a block side by side (Gu and Dao, 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hybridc.runtime.ops.autocast import without_autocast
from hybridc.runtime.ops.chunks import Chunks
from hybridc.runtime.ops.recurrence import recurrence

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context

CHUNK = 16
"""Tokens in sequence: a block makes this many steps, whatever its number of chunks."""

BLOCK = 16
"""Chunks side by side: the states of BLOCK x CHUNK tokens are held at once, which bounds the memory."""


@without_autocast
def selective_scan(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, ctx: Context, state: MambaState | None = None
) -> Tensor:  # fmt: skip
    """h_t = exp(dt_t a) h_{t-1} + dt_t b_t u_t, y_t = c_t h_t + d u_t, for each channel and document.

    u [B, S, D], dt [B, S, D] after softplus, a [D, N] negative, b and c [B, S, N], d [D] -> y [B, S, D] in u's dtype;
    fp32 inside, or fp64 for fp64 inputs. Documents are the context's; they start from the cache entry `state`, which
    then holds their ends, or from zeros.
    """
    dtype = u.dtype
    inside = torch.promote_types(dtype, torch.float32)
    u, dt, a, b, c = u.to(inside), dt.to(inside), a.to(inside), b.to(inside), c.to(inside)
    if state is not None and ctx.borders is None and u.shape[1] == 1:
        inflow = (dt * u).transpose(1, 2) * b
        last = torch.addcmul(inflow, (dt.transpose(1, 2) * a).exp(), state.ssm)
        y = (last @ c.transpose(1, 2)).transpose(1, 2)
        state.keep_ssm(last)
    else:
        chunks: Chunks = ctx.plan(("chunks", CHUNK), lambda: Chunks.make(u.shape[1], ctx.borders, CHUNK, u.device))
        shape = (chunks.count, u.shape[0], *a.shape)
        initial = u.new_zeros(()).expand(shape) if state is None else state.ssm.to(inside).reshape(shape)
        y, ends = _blocks(u, dt, a, b, c, chunks, initial)
        if state is not None:
            state.keep_ssm(torch.stack([ends.get(n, initial[n]) for n in range(chunks.count)]))
    return torch.addcmul(y, u, d.to(inside)).to(dtype)


def _blocks(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunks: Chunks, initial: Tensor
) -> tuple[Tensor, dict[int, Tensor]]:  # fmt: skip
    """Block after block: y [B, S, D] and the last state [B, D, N] of each document that has a token."""
    u, dt, b, c = (chunks.cut(t) for t in (u, dt, b, c))
    outputs = []
    ends: dict[int, Tensor] = {}
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (u, dt, a, b, c))
    for start in range(0, len(chunks.document), BLOCK):
        part = slice(start, start + BLOCK)
        documents = chunks.document[part]
        first = documents[0]
        states = initial[first : documents[-1] + 1]
        if first in ends:
            states = torch.cat((ends[first][None], states[1:]))
        arguments = (u[:, part], dt[:, part], a, b[:, part], c[:, part], states, [n - first for n in documents])
        y, last = (
            checkpoint(_block, *arguments, use_reentrant=False, preserve_rng_state=False)
            if save
            else _block(*arguments)
        )
        outputs.append(y)
        ends.update({n: last[n - first] for n in documents})
    return chunks.join(torch.cat(outputs, 1) if outputs else u), ends


def _block(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, initial: Tensor, document: list[int]
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Chunks u and dt [B, chunks, L, D], b and c [B, chunks, L, N], initial [documents, B, D, N] -> y, like u, and the
    last states, like initial."""
    decay = (dt[..., None] * a).exp()
    h, last = recurrence(decay, (dt * u)[..., None] * b[..., None, :], initial, document)
    return (h @ c[..., None])[..., 0], last
