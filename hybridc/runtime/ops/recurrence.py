"""The elementwise linear recurrence that state spaces with a diagonal decay share, all chunks side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hybridc.runtime.ops.chunks import pass_states


def recurrence(decay: Tensor, added: Tensor, initial: Tensor, document: Sequence[int]) -> tuple[Tensor, Tensor]:
    """h_t = decay_t h_{t-1} + added_t over chunks, anew from `initial` where a document starts.

    decay and added [B, chunks, L, ...state], initial [documents, B, ...state], `document` that of each chunk -> all h,
    like added, and the last of each document, like initial.
    """
    h, last = _Recurrence.apply(decay, added, initial, document)  # type: ignore[no-untyped-call]
    return h, last


class _Recurrence(torch.autograd.Function):
    """All chunks step together from zero; then each adds what the state before it has become at each step.

    Only products of decays occur, so nothing overflows. The gradient is the same recurrence backwards in time.
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
