"""Mamba's scan: a diagonal state space per channel, all chunks of a block side by side (Gu and Dao, 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from hybridc.runtime.ops.chunks import Chunks, pass_states

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context

CHUNK = 16
"""Tokens in sequence: a block makes this many steps, whatever its number of chunks."""

BLOCK = 16
"""Chunks side by side: the states of BLOCK x CHUNK tokens are held at once, which bounds the memory."""


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
    h, last = _Recurrence.apply(decay, (dt * u)[..., None] * b[..., None, :], initial, document)  # type: ignore[no-untyped-call]
    return (h @ c[..., None])[..., 0], last


class _Recurrence(torch.autograd.Function):
    """h_t = decay_t h_{t-1} + added_t over chunks [B, chunks, L, ...state], anew from `initial` [documents, B,
    ...state] where a document starts; gives all h and each document's last.

    All chunks step together from zero; then each adds what the state before it has become at each step. Only products
    of decays occur, so nothing overflows. The gradient is the same recurrence backwards in time.
    """

    @staticmethod
    def forward(ctx, decay, added, initial, document):  # type: ignore[no-untyped-def]
        h, since = torch.empty_like(added), torch.empty_like(decay)
        h[:, :, 0], since[:, :, 0] = added[:, :, 0], decay[:, :, 0]
        for t in range(1, decay.shape[2]):
            torch.addcmul(added[:, :, t], decay[:, :, t], h[:, :, t - 1], out=h[:, :, t])
            torch.mul(decay[:, :, t], since[:, :, t - 1], out=since[:, :, t])
        last = initial.clone(memory_format=torch.contiguous_format)
        before = pass_states(h[:, :, -1], since[:, :, -1], last, list(enumerate(document)))
        h.addcmul_(since, before[:, :, None])
        ctx.save_for_backward(decay, h, before)
        ctx.document = document
        return h, last

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_h, grad_last):  # type: ignore[no-untyped-def]
        decay, h, before = ctx.saved_tensors
        grad, until = torch.empty_like(decay), torch.empty_like(decay)
        grad[:, :, -1], until[:, :, -1] = grad_h[:, :, -1], 1.0
        for t in range(decay.shape[2] - 2, -1, -1):
            torch.addcmul(grad_h[:, :, t], decay[:, :, t + 1], grad[:, :, t + 1], out=grad[:, :, t])
            torch.mul(decay[:, :, t + 1], until[:, :, t + 1], out=until[:, :, t])
        grad_initial = grad_last.clone(memory_format=torch.contiguous_format)
        first = decay[:, :, 0]
        order = list(enumerate(ctx.document))[::-1]
        after = pass_states(first * grad[:, :, 0], first * until[:, :, 0], grad_initial, order)
        grad.addcmul_(until, after[:, :, None])
        grad_decay = torch.empty_like(decay)
        torch.mul(grad[:, :, 0], before, out=grad_decay[:, :, 0])
        torch.mul(grad[:, :, 1:], h[:, :, :-1], out=grad_decay[:, :, 1:])
        return grad_decay, grad, grad_initial, None
