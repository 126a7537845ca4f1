"""The real-gated linear recurrent unit of Griffin, and the block-diagonal projections that make its gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from hybridc.runtime.ops.autocast import without_autocast
from hybridc.runtime.ops.chunks import Chunks
from hybridc.runtime.ops.recurrence import recurrence

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context

CHUNK = 32
"""Tokens in sequence: a row of S tokens takes CHUNK + S / CHUNK steps."""

STEEPEST = 1000.0
"""The largest derivative that the root of 1 - a² has in the backward: it has none where a reaches 1."""


class BlockLinear(nn.Module):
    """y_n = weight_n x_n + bias_n for each of `blocks` equal parts of the channels.

    Parameters: weight [blocks, width / blocks, width / blocks] (rows of the result first), bias [blocks, width /
    blocks].
    """

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        size = width // blocks
        self.weight = nn.Parameter(torch.empty(blocks, size, size))
        self.bias = nn.Parameter(torch.zeros(blocks, size))
        nn.init.normal_(self.weight, std=size**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., width] -> [..., width]."""
        parts = x.reshape(-1, *self.bias.shape).transpose(0, 1)
        y = torch.baddbmm(self.bias[:, None], parts, self.weight.transpose(1, 2))
        return y.transpose(0, 1).reshape(x.shape)


@without_autocast
def rg_lru(
    x: Tensor,
    input_gate: Tensor,
    recurrence_gate: Tensor,
    rate: Tensor,
    ctx: Context,
    state: MambaState | None = None,
    *,
    c: float = 8.0,
) -> Tensor:
    """h_t = a_t h_{t-1} + sqrt(1 - a_t²) σ(i_t) x_t with a_t = exp(-c softplus(rate) σ(r_t)), for each channel and
    document; a document's first token enters whole, h = σ(i) x (De et al., 2024, section 2.4 and their code).

    x and the gates' logits i and r [B, S, D], rate [D] -> h [B, S, D] in x's dtype; fp32 inside, or fp64 for fp64
    inputs. Documents are the context's; they start from the cache entry `state`, which then holds their ends.
    """
    dtype = x.dtype
    log_a, added = entering(x, input_gate, recurrence_gate, rate, ctx, c)
    if state is not None and ctx.borders is None and x.shape[1] == 1:
        h = torch.addcmul(added, log_a.exp(), state.ssm.to(added.dtype)[:, None])
        state.keep_ssm(h)
        return h.to(dtype)
    chunks: Chunks = ctx.plan(("chunks", CHUNK), lambda: Chunks.make(x.shape[1], ctx.borders, CHUNK, x.device))
    shape = (chunks.count, x.shape[0], x.shape[2])
    initial = added.new_zeros(()).expand(shape) if state is None else state.ssm.to(added.dtype).reshape(shape)
    # the logs are cut, since a place without a token, where they are 0, keeps the state
    h, last = recurrence(chunks.cut(log_a).exp(), chunks.cut(added), initial, chunks.document)
    if state is not None:
        state.keep_ssm(last)
    return chunks.join(h).to(dtype)


def entering(
    x: Tensor, input_gate: Tensor, recurrence_gate: Tensor, rate: Tensor, ctx: Context, c: float
) -> tuple[Tensor, Tensor]:
    """log a_t and sqrt(1 - a_t²) σ(i_t) x_t of `rg_lru`, [B, S, D] each, fp32, or fp64 for fp64 inputs."""
    inside = torch.promote_types(x.dtype, torch.float32)
    log_a = F.softplus(rate.to(inside)) * -c * recurrence_gate.to(inside).sigmoid()
    kept: Tensor = _Root.apply(-torch.expm1(2 * log_a))  # type: ignore[no-untyped-call]
    starts: Tensor | None = ctx.plan("starts", lambda: _starts(ctx))
    if starts is not None:
        kept = kept.masked_fill(starts, 1.0)
    return log_a, kept * input_gate.to(inside).sigmoid() * x.to(inside)


def _starts(ctx: Context) -> Tensor | None:
    """Where documents start in this call, [B, S, 1], or None where none does."""
    if ctx.borders is None:
        places = [(row, 0) for row, past in enumerate(ctx.past) if not past]
    else:
        spans = zip(ctx.borders, ctx.lengths, ctx.past, strict=False)
        places = [(0, start) for start, count, past in spans if count and not past]
    if not places:
        return None
    device = ctx.input_ids.device
    mask = torch.zeros(*ctx.input_ids.shape, 1, dtype=torch.bool, device=device)
    rows, starts = torch.tensor(places, device=device).unbind(1)
    mask[rows, starts] = True
    return mask


class _Root(torch.autograd.Function):
    """sqrt(x) with a derivative of at most STEEPEST."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        y = x.sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (y,) = ctx.saved_tensors
        return grad / (2 * y).clamp(min=1 / STEEPEST)
