"""Mamba-2's scan in its chunked form: matrix products within chunks, a small state between them (Dao and Gu, 2024)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hybridc.runtime.ops.autocast import without_autocast
from hybridc.runtime.ops.chunks import Chunks, StatePassing, running_sums

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState, ScanState
    from hybridc.runtime.context import Context

LONGEST_CHUNK = 64
"""A longer chunk computes the same, but its square of weights costs more than the states that it saves."""


@without_autocast
def ssd(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    ctx: Context | None = None,
    state: MambaState | ScanState | None = None,
    *,
    chunk: int = LONGEST_CHUNK,
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """h_t = exp(dt_t a) h_{t-1} + dt_t x_t ⊗ b_t, y_t = h_t c_t + d x_t, for each head and document.

    x [B, S, H, P], dt [B, S, H] after softplus, a [H] negative, b and c [B, S, G, N] (head h reads group h // (H / G)),
    d [H] -> y [B, S, H, P] in x's dtype; fp32 inside, or fp64 for fp64 inputs. Documents are the context's, or the rows
    without one. They start from the cache entry `state`, which then holds their ends, or from `initial_state`
    [documents, H, P, N], or from zeros. With `return_state` also the documents' last states, like initial_state.
    """
    dtype = x.dtype
    inside = torch.promote_types(dtype, torch.float32)
    x, dt, a, b, c = x.to(inside), dt.to(inside), a.to(inside), b.to(inside), c.to(inside)
    borders = None if ctx is None else ctx.borders
    before = initial_state if state is None else state.ssm
    if borders is None and x.shape[1] == 1 and before is not None:
        y, last = _step(x[:, 0], dt[:, 0], a, b[:, 0], c[:, 0], before)
        y = y[:, None]
    else:
        y, last = _documents(x, dt, a, b, c, ctx, min(chunk, LONGEST_CHUNK), before)
    if state is not None:
        state.keep_ssm(last)
    if d is not None:
        y = torch.addcmul(y, x, d.to(inside)[:, None])
    y = y.to(dtype)
    return (y, last) if return_state else y


def ssd_reference(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, initial_state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What `ssd` computes, token after token: the form to hold other implementations against."""
    heads = x.shape[2]
    b, c = (t.repeat_interleave(heads // t.shape[2], dim=2) for t in (b, c))
    h = x.new_zeros(x.shape[0], heads, x.shape[3], b.shape[3]) if initial_state is None else initial_state
    ys = []
    for t in range(x.shape[1]):
        inflow = torch.einsum("bh,bhp,bhn->bhpn", dt[:, t], x[:, t], b[:, t])
        h = (dt[:, t] * a).exp()[..., None, None] * h + inflow
        ys.append(torch.einsum("bhpn,bhn->bhp", h, c[:, t]) + d[:, None] * x[:, t])
    return torch.stack(ys, dim=1) if ys else x, h


def _documents(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, ctx: Context | None, chunk: int, initial: Tensor | None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y [B, S, H, P] without the skip, and the last states [documents, H, P, N]."""
    if ctx is None:
        chunks = Chunks.make(x.shape[1], None, chunk, x.device)
    else:
        chunks = ctx.plan(("chunks", chunk), lambda: Chunks.make(x.shape[1], ctx.borders, chunk, x.device))
    rows, _, heads, width = x.shape
    groups, size = b.shape[2:]
    share = heads // groups
    shape = (chunks.count, rows, heads, width, size)
    initial = x.new_zeros(shape) if initial is None else initial.to(x.dtype).reshape(shape)
    x, dt, b, c = (chunks.cut(t) for t in (x, dt, b, c))  # [B, chunks, L, ...]
    sums, rest = running_sums(dt * a, 2)
    inflow = x * dt[..., None]
    y = _WithinChunks.apply(*(t.flatten(0, 1) for t in (inflow, sums, rest, b, c))).view_as(x)  # type: ignore[no-untyped-call]
    # what each chunk adds to the state behind it, and what it reads of the state before it; one product a group
    to_end = (sums[:, :, -1:] - sums) + (rest[:, :, -1:] - rest)
    kept = (inflow * to_end.exp()[..., None]).view(*x.shape[:3], groups, share * width)
    added = kept.permute(0, 1, 3, 4, 2) @ b.transpose(2, 3)
    states, last = StatePassing.apply(
        added.view(*x.shape[:2], heads, width, size), sums[:, :, -1].exp(), initial, chunks.document
    )  # type: ignore[no-untyped-call]
    carried = c.transpose(2, 3) @ states.view(*x.shape[:2], groups, share * width, size).transpose(-1, -2)
    y = torch.addcmul(y, carried.transpose(2, 3).reshape(x.shape), sums.exp()[..., None])
    return chunks.join(y), last.view(-1, heads, width, size)


def _step(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token: x [B, H, P], dt [B, H], b and c [B, G, N], state [B, H, P, N] -> y [B, H, P] and the new state."""
    rows, heads, width = x.shape
    groups, size = b.shape[1:]
    inner = (rows, groups, heads // groups, width, size)
    inflow = (x * dt[..., None]).view(*inner[:4], 1) * b[:, :, None, None]
    new = torch.addcmul(inflow.view_as(state), (dt * a).exp()[..., None, None], state)
    y = new.view(rows, groups, -1, size) @ c[..., None]
    return y.view_as(x), new


class _WithinChunks(torch.autograd.Function):
    """y_i = Σ_{j <= i} exp(l_i - l_j) (c_i · b_j) s_j in each chunk, with l the sum of `sums` and `rest`.

    s [M, L, H, P], sums and rest [M, L, H], b and c [M, L, G, N] -> y, like s. The square matrices of the weights are
    made for a few chunks at a time, and made again in the backward, so they cost little memory and stay in cache.
    """

    @staticmethod
    def forward(ctx, s, sums, rest, b, c):  # type: ignore[no-untyped-def]
        y = torch.empty_like(s, memory_format=torch.contiguous_format)
        for part in _parts(s):
            decays, scores = _weights(sums[part], rest[part], b[part], c[part])
            weights = _grouped(decays, scores).mul_(scores[:, :, None]).view_as(decays)
            y[part] = (weights @ s[part].transpose(1, 2)).transpose(1, 2)
        ctx.save_for_backward(s, sums, rest, b, c)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        s, sums, rest, b, c = ctx.saved_tensors
        grad_s, grad_sums, grad_b, grad_c = (torch.empty_like(t) for t in (s, sums, b, c))
        for part in _parts(s):
            decays, scores = _weights(sums[part], rest[part], b[part], c[part])
            g = grad[part].transpose(1, 2).contiguous()
            weights = _grouped(decays, scores) * scores[:, :, None]
            grad_s[part] = (weights.view_as(decays).transpose(-1, -2) @ g).transpose(1, 2)
            moved = (g @ s[part].permute(0, 2, 3, 1)).mul_(decays)
            grad_scores = _grouped(moved, scores).sum(2)
            grad_c[part] = (grad_scores @ b[part].transpose(1, 2)).transpose(1, 2)
            grad_b[part] = (grad_scores.transpose(-1, -2) @ c[part].transpose(1, 2)).transpose(1, 2)
            _grouped(moved, scores).mul_(scores[:, :, None])
            grad_sums[part] = (moved.sum(-1) - moved.sum(-2)).transpose(1, 2)
        return grad_s, grad_sums, None, grad_b, grad_c


def _parts(s: Tensor) -> Iterator[slice]:
    """Chunks to handle at once: as many as leave their weights in a processor's cache, or more on an accelerator."""
    elements = 1 << 19 if s.device.type == "cpu" else 1 << 26
    count = max(1, elements // (s.shape[1] ** 2 * s.shape[2]))
    return (slice(start, start + count) for start in range(0, s.shape[0], count))


def _weights(sums: Tensor, rest: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """exp(l_i - l_j) for j <= i, else 0, [m, H, L, L]; and c_i · b_j, [m, G, L, L]."""
    sums, rest = sums.transpose(1, 2), rest.transpose(1, 2)
    gaps = sums[..., :, None] - sums[..., None, :]
    gaps += rest[..., :, None]
    gaps -= rest[..., None, :]
    above = torch.ones(gaps.shape[-2:], dtype=torch.bool, device=gaps.device).triu(1)
    return gaps.masked_fill_(above, -torch.inf).exp_(), c.transpose(1, 2) @ b.permute(0, 2, 3, 1)


def _grouped(per_head: Tensor, scores: Tensor) -> Tensor:
    """[m, H, L, L] -> [m, G, H / G, L, L]."""
    return per_head.unflatten(1, (scores.shape[1], -1))
