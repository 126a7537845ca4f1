"""The gated delta rule in its chunked form, with one decay a head (Gated DeltaNet) or one a channel (KDA).

A state S [key_dim, value_dim] forgets, and then replaces what it has stored under a key by a new value:
S ← exp(g_t) S;  S ← S + β_t k_t (v_t - k_tᵀ S)ᵀ;  y_t = q_tᵀ S  (Yang et al., 2024; Kimi Linear, 2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hybridc.runtime.ops.autocast import without_autocast
from hybridc.runtime.ops.chunks import Chunks, running_sums

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context

CHUNK = 64
"""Tokens whose updates are solved for at once where a head has one decay."""

CHANNEL_CHUNK = 16
"""The same with a decay for each channel, whose products of keys need the differences of all pairs for each channel."""

EPS = 1e-6
"""Added to the square of a length that keys and queries are divided by."""


@without_autocast
def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    ctx: Context,
    state: MambaState | None = None,
) -> Tensor:
    """y of the recurrence above for each head and document, with keys and queries of length 1, queries times
    key_dim^-0.5.

    q and k [B, S, key_heads, key_dim], v [B, S, heads, value_dim] (head h reads key head h // (heads / key_heads)),
    beta [B, S, heads], g the logs of the decays, at most 0, [B, S, heads] or [B, S, heads, key_dim] -> [B, S, heads,
    value_dim] in v's dtype; fp32 inside, or fp64 for fp64 inputs. Documents are the context's; they start from the
    cache entry `state`, which then holds their ends, or from zeros.
    """
    dtype = v.dtype
    inside = torch.promote_types(dtype, torch.float32)
    q, k, v, g, beta = (t.to(inside) for t in (q, k, v, g, beta))
    q, k = (t * (t.square().sum(-1, keepdim=True) + EPS).rsqrt() for t in (q, k))
    q = q * q.shape[-1] ** -0.5
    share = v.shape[2] // k.shape[2]
    if share > 1:
        q, k = q.repeat_interleave(share, dim=2), k.repeat_interleave(share, dim=2)
    if g.dim() == 3:
        g = g[..., None]
    if state is not None and ctx.borders is None and v.shape[1] == 1:
        y, last = _step(q[:, 0], k[:, 0], v[:, 0], g[:, 0], beta[:, 0], state.ssm.to(inside))
        y = y[:, None]
    else:
        y, last = _documents(q, k, v, g, beta, ctx, None if state is None else state.ssm)
    if state is not None:
        state.keep_ssm(last)
    return y.to(dtype)


def _step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token: q and k [B, H, K], v [B, H, V], g [B, H, 1 or K], beta [B, H], state [B, H, K, V]."""
    state = g.exp()[..., None] * state
    change = (v - (k[..., None, :] @ state)[..., 0, :]) * beta[..., None]
    state = torch.addcmul(state, k[..., None], change[..., None, :])
    return (q[..., None, :] @ state)[..., 0, :], state


def _documents(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, ctx: Context, initial: Tensor | None
) -> tuple[Tensor, Tensor]:
    """y [B, S, H, V], and the last states [documents, H, K, V] (B of them in plain rows)."""
    longest = CHUNK if g.shape[-1] == 1 else CHANNEL_CHUNK
    chunks: Chunks = ctx.plan(("chunks", longest), lambda: Chunks.make(v.shape[1], ctx.borders, longest, v.device))
    shape = (chunks.count, v.shape[0], v.shape[2], k.shape[3], v.shape[3])
    before = v.new_zeros(shape) if initial is None else initial.to(v.dtype).reshape(shape)
    # [B, chunks, H, L, ...]
    parts = [chunks.cut(t).transpose(2, 3) for t in (q, k, v, g, beta[..., None])]
    if torch.is_grad_enabled() and any(t.requires_grad for t in parts) and g.shape[-1] > 1:
        solved = checkpoint(_solved, *parts, use_reentrant=False, preserve_rng_state=False)
    else:
        solved = _solved(*parts)
    values, keys_read, scores, q_read, k_kept, decay = solved
    states = list(before.unbind())
    outputs = []
    for n, document in enumerate(chunks.document):
        old = states[document]
        new_values = values[:, n] - keys_read[:, n] @ old
        outputs.append(q_read[:, n] @ old + scores[:, n] @ new_values)
        states[document] = decay[:, n] * old + k_kept[:, n].transpose(-1, -2) @ new_values
    if not outputs:
        return v, before.view(-1, *shape[2:])
    y = torch.stack(outputs, 1).transpose(2, 3)
    return chunks.join(y), torch.stack(states).view(-1, *shape[2:])


def _solved(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """What the states between chunks are combined with: for chunks [B, N, H, L, ...] the values as if the state before
    were zero, the keys that read it, the scores within the chunk, the queries that read it, the keys as of the chunk's
    end, and the chunk's decay [B, N, H, 1 or K, 1].

    Each token's change depends on those before it in the chunk through a triangular system: (I + A) U = β V - β K S.
    """
    sums, rest = running_sums(g, 3)
    if g.shape[-1] == 1:
        gaps = (sums - sums.transpose(-1, -2)) + (rest - rest.transpose(-1, -2))
        decays = _lower(gaps).exp()
        system, scores = (k * beta) @ k.transpose(-1, -2) * decays, q @ k.transpose(-1, -2) * decays
    else:
        # only differences of sums are exponentiated, since the sums themselves may be beyond any float
        gaps = sums[..., :, None, :] - sums[..., None, :, :]
        gaps += rest[..., :, None, :]
        gaps -= rest[..., None, :, :]
        weighted = k[..., None, :, :] * _lower(gaps.movedim(-1, -3)).movedim(-3, -1).exp()
        system = (weighted @ (k * beta)[..., :, :, None])[..., 0]
        scores = (weighted @ q[..., :, :, None])[..., 0]
    read = sums.exp()
    rhs = torch.cat((v * beta, k * beta * read), dim=-1)
    # the diagonal is taken as ones, so that what stands there does not matter
    both = torch.linalg.solve_triangular(system, rhs, upper=False, unitriangular=True)
    values, keys_read = both.split((v.shape[-1], k.shape[-1]), dim=-1)
    last = sums[..., -1:, :]
    to_end = (last - sums) + (rest[..., -1:, :] - rest)
    return values, keys_read, scores, q * read, k * to_end.exp(), last.exp().transpose(-1, -2)


def _lower(gaps: Tensor) -> Tensor:
    """gaps [..., L, L] with -inf above the diagonal."""
    above = torch.ones(gaps.shape[-2:], dtype=torch.bool, device=gaps.device).triu(1)
    return gaps.masked_fill(above, -torch.inf)
