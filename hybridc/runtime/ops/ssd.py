"""Mamba-2's scan in its chunked form: matrix products within chunks, a small state between them (Dao and Gu, 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hybridc.runtime.ops.chunks import Chunks, StatePassing

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context


def ssd_chunked(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunks: Chunks, initial: Tensor
) -> tuple[Tensor, Tensor]:
    """h_t = exp(dt_t a) h_{t-1} + dt_t x_t ⊗ b_t, y_t = h_t c_t, for each head; all fp32.

    x [B, S, H, P], dt [B, S, H], a [H] (negative), b and c [B, S, G, N], initial [documents, B, H, P, N] -> y [B, S,
    H, P]
    and the last state of each document, like initial.
    """
    heads, groups = x.shape[2], b.shape[2]
    x, dt, b, c = (chunks.cut(t) for t in (x, dt, b, c))
    x = x.permute(0, 1, 3, 2, 4)  # [B, chunks, H, L, P]
    dt = dt.transpose(2, 3)  # [B, chunks, H, L]
    b, c = b.transpose(2, 3), c.transpose(2, 3)  # [B, chunks, G, L, N]
    decay, rest = _sums(dt * a[:, None])
    # within a chunk: token i reads token j <= i through c_i b_j, decayed over the steps between
    scores = c @ b.transpose(-1, -2)
    weights = _between(decay, rest) * dt[..., None, :]
    if groups == 1:
        weights = weights * scores
    else:
        weights = (weights.unflatten(2, (groups, -1)) * scores[:, :, :, None]).flatten(2, 3)
    y = weights @ x
    # what a chunk adds to the state, and the state that each chunk starts from
    end = decay[..., -1:]
    kept = (x * (((end - decay) + (rest[..., -1:] - rest)).exp() * dt)[..., None]).transpose(-1, -2)
    added = _per_group(kept, b, groups, heads)
    before, last = StatePassing.apply(added, end[..., 0].exp(), initial, chunks.document)  # type: ignore[no-untyped-call]
    carried = _per_group_read(before, c, groups, heads)
    y = y + carried * decay.exp()[..., None]
    return chunks.join(y.permute(0, 1, 3, 2, 4)), last


def _sums(steps: Tensor) -> tuple[Tensor, Tensor]:
    """Running sums over the last dim as a float32 and the rest of the float64 sum: their differences stay exact."""
    exact = steps.double().cumsum(-1)
    high = exact.float()
    return high, (exact - high.double()).float()


def _between(decay: Tensor, rest: Tensor) -> Tensor:
    """exp of the sum over (j, i] for j <= i, else 0: [..., L, L]."""
    length = decay.shape[-1]
    gap = (decay[..., :, None] - decay[..., None, :]) + (rest[..., :, None] - rest[..., None, :])
    above = torch.ones(length, length, dtype=torch.bool, device=decay.device).triu(1)
    return gap.masked_fill(above, -torch.inf).exp()


def _per_group(kept: Tensor, b: Tensor, groups: int, heads: int) -> Tensor:
    """kept [..., H, P, L] times b [..., G, L, N] of its group -> [..., H, P, N], one product a group."""
    tall = kept.unflatten(2, (groups, heads // groups)).flatten(3, 4)  # [B, chunks, G, H/G P, L]
    return (tall @ b).unflatten(3, (heads // groups, -1)).flatten(2, 3)


def _per_group_read(state: Tensor, c: Tensor, groups: int, heads: int) -> Tensor:
    """state [..., H, P, N] read by c [..., G, L, N] of its group -> [..., H, L, P]."""
    tall = state.unflatten(2, (groups, heads // groups)).flatten(3, 4)  # [B, chunks, G, H/G P, N]
    read = c @ tall.transpose(-1, -2)  # [B, chunks, G, L, H/G P]
    return read.unflatten(-1, (heads // groups, -1)).transpose(3, 4).flatten(2, 3)


def ssd_step(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token: x [B, H, P], dt [B, H], b and c [B, G, N], state [B, H, P, N] -> y [B, H, P] and the new state."""
    repeat = x.shape[1] // b.shape[1]
    if repeat > 1:
        b, c = b.repeat_interleave(repeat, 1), c.repeat_interleave(repeat, 1)
    decay = (dt * a).exp()[..., None, None]
    state = torch.addcmul(state * decay, (x * dt[..., None])[..., None], b[:, :, None])
    return (state @ c[..., None])[..., 0], state


def ssd(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    ctx: Context,
    state: MambaState | None,
    *,
    chunk: int,
) -> Tensor:
    """The scan with its skip d x, over the context's documents, from and to the cache's state.

    x [B, S, H, P], dt [B, S, H] after softplus, a [H] negative, b and c [B, S, G, N], d [H] -> y [B, S, H, P] in x's
    dtype.
    """
    dtype = x.dtype
    x, dt, a, b, c = x.float(), dt.float(), a.float(), b.float(), c.float()
    if state is not None and ctx.borders is None and x.shape[1] == 1:
        y, new = ssd_step(x[:, 0], dt[:, 0], a, b[:, 0], c[:, 0], state.ssm)
        state.ssm.copy_(new.detach())
        y = y[:, None]
    else:
        plan: Chunks = ctx.plan(
            ("chunks", chunk), lambda: Chunks.make(x.shape[1], ctx.borders, chunk, x.device)
        )  # fmt: skip
        shape = (plan.count, x.shape[0], x.shape[2], x.shape[3], b.shape[3])
        initial = x.new_zeros(shape) if state is None else state.ssm.reshape(shape)
        y, last = ssd_chunked(x, dt, a, b, c, plan, initial)
        if state is not None:
            state.ssm.copy_(last.detach().reshape(state.ssm.shape))
    return (y + x * d.float()[:, None]).to(dtype)
