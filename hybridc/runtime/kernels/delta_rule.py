"""`ops.gated_delta_rule` in Triton, with one decay a head (Gated DeltaNet) or one a channel (Kimi delta attention).

Chunks of up to 64 tokens (fewer for keys wider than 128, and for fp32): products of matrices within a chunk, a small
state between them (Yang et al., 2024; Kimi Linear, 2025). The products take operands of the data's dtype and add in
fp32 (fp32 data: three products of tf32); states, decays and their sums are fp32.

Traffic of a token and head in bytes, with bf16 data and K = V = 128:

- `solve` reads q, k and v (768) and writes solved keys and values and two matrices [64, 64] (768). With a decay a
  channel it also reads g twice (1,024), and writes q and k with decays on them (512).
- `pass_states` reads keys, values and k (768) and writes new values (256) and a state a chunk (512).
- `outputs` reads q, scores, new values and states (1,152) and writes y (256).

The backward keeps the inputs and one of the matrices (128). `solve` and `pass_states` run again; `states_backward` goes
over the states from the end (reads 1,152, writes 768), `reads_backward` takes chunks apart (reads 2,688, writes 1,280)
down to pairs of tokens, `pairs_backward` (reads 1,536, writes 512), and `unit_backward` undoes the scaling to length 1
(reads 1,024, writes 512). Decoding has a kernel of its own, which reads and writes the states once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels import delta_rule_channels as channels
from hybridc.runtime.kernels import delta_rule_channels_backward as channels_backward
from hybridc.runtime.kernels import delta_rule_scalar as scalar
from hybridc.runtime.kernels.delta_rule_states import outputs, pass_states, reads_backward, states_backward
from hybridc.runtime.kernels.delta_rule_step import run_step
from hybridc.runtime.kernels.delta_rule_variants import VARIANTS
from hybridc.runtime.kernels.device import capability
from hybridc.runtime.ops.autocast import without_autocast

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState
    from hybridc.runtime.context import Context

__all__ = ["VARIANTS", "Spans", "delta_rule_chunks", "gated_delta_rule"]

LONGEST_CHUNK = 64
"""A longer one would do more within chunks than it saves between them."""


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
    """y of S ← exp(g_t) S; S ← S + β_t k_t (v_t - k_tᵀ S)ᵀ; y_t = q_tᵀ S for each head and document, with keys and
    queries of length 1, queries times key_dim^-0.5.

    q and k [B, S, key_heads, key_dim], v [B, S, heads, value_dim] (head h reads key head h // (heads / key_heads)),
    beta [B, S, heads], g the logs of the decays, at most 0, [B, S, heads] or [B, S, heads, key_dim] -> [B, S, heads,
    value_dim] in v's dtype. Documents are the context's; they start from the cache entry `state`, which then holds
    their ends, or from zeros. Raises UsageError for fp64 and for keys wider than 256.
    """
    dtype = wide = v.dtype
    for t in (q, k):
        wide = torch.promote_types(wide, t.dtype)
    if wide == torch.float64:
        raise UsageError("the kernels of the delta rule do not know fp64", "call hybridc.runtime.ops.gated_delta_rule")
    if k.shape[-1] > 256:
        raise UsageError(f"keys are {k.shape[-1]} wide, and the kernels take up to 256", "use a smaller key_dim")
    q, k, v = (t.to(wide) for t in (q, k, v))
    before = None if state is None else state.ssm
    if before is not None and ctx.borders is None and v.shape[1] == 1 and not torch.is_grad_enabled():
        return _decode(q, k, v, g, beta, state).to(dtype)
    longest = max(ctx.lengths, default=1)
    size = _chunk(longest, k.shape[-1], wide.itemsize)
    spans = ctx.plan(("delta rule", size), lambda: Spans.make(_borders(ctx), size, v.device))
    y, last = delta_rule_chunks(*(t.flatten(0, 1) for t in (q, k, v, g, beta)), spans, before)
    if state is not None:
        state.keep_ssm(last)
    return y.view(v.shape).to(dtype)


def _decode(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: MambaState) -> Tensor:
    """One token a row, without gradients; the states are changed where they are if they can be."""
    q, k, v = (_dense(t[:, 0]) for t in (q, k, v))
    old = state.ssm.float().contiguous()
    y = run_step(q, k, v, g[:, 0].contiguous(), beta[:, 0].contiguous(), old, old)
    if old is state.ssm:
        increment_version(old)
    else:
        state.keep_ssm(old)
    return y[:, None]


def _borders(ctx: Context) -> list[int]:
    """Offsets of the documents in the flattened tokens."""
    if ctx.borders is not None:
        return ctx.borders
    rows, length = ctx.input_ids.shape
    return list(range(0, rows * length + 1, length))


def _chunk(longest: int, key_dim: int, itemsize: int) -> int:
    """Tokens of a chunk: as many as a program's registers hold with keys of this width and type, and no more than the
    longest document has."""
    most = max(16, min(LONGEST_CHUNK, (1 << 15) // (triton.next_power_of_2(key_dim) * itemsize**2)))
    return min(most, max(16, triton.next_power_of_2(longest)))


@dataclass
class Spans:
    """Documents cut into chunks of at most `size` tokens, as the kernels read it.

    `borders` [documents + 1] are the documents' first tokens and the end, `firsts` [documents + 1] the same for their
    chunks, `chunks` [chunks, 2] each chunk's first token and the end of its document; all int32.
    """

    size: int
    borders: Tensor
    firsts: Tensor
    chunks: Tensor

    @staticmethod
    def make(borders: list[int], size: int, device: torch.device) -> Spans:
        """From offsets that rise from 0; a document may be empty. `size` is 16, 32 or 64."""
        firsts, chunks = [0], []
        for start, end in pairwise(borders):
            chunks += [(first, end) for first in range(start, end, size)]
            firsts.append(len(chunks))
        made = (torch.tensor(x, dtype=torch.int32, device=device) for x in (borders, firsts, chunks))
        return Spans(size, *made)


def delta_rule_chunks(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, spans: Spans, initial: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The rule for tokens [T] of documents that lie one after the other.

    q and k [T, key_heads, K], v [T, heads, V] (all of one dtype), g [T, heads] or [T, heads, K], beta [T, heads],
    initial [documents, heads, K, V], zeros if None -> y like v, and the last states like initial, fp32. Differentiable
    in all of them, and by way of both results.
    """
    shape = (spans.borders.numel() - 1, v.shape[1], k.shape[2], v.shape[2])
    if initial is not None:
        initial = initial.to(torch.float32).reshape(shape).contiguous()
    return _DeltaRule.apply(_dense(q), _dense(k), _dense(v), g.contiguous(), beta.contiguous(), initial, spans)


def _dense(x: Tensor) -> Tensor:
    """x with the channels of a head next to each other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _old(device: torch.device) -> bool:
    """Whether it is an A100 or older, whose tensor cores take more registers for their operands."""
    return 0 < capability(device) < 90


class _Launcher:
    """One call's kernels: sizes, blocks and the tensors between them."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, spans: Spans) -> None:
        self.q, self.k, self.v, self.g, self.spans = q, k, v, g, spans
        self.channels = g.dim() == 3
        self.tokens, self.heads, self.width = v.shape
        self.key_dim, self.chunks, self.size = k.shape[2], len(spans.chunks), spans.size
        self.documents = spans.borders.numel() - 1
        self.bk = max(16, triton.next_power_of_2(self.key_dim))
        self.bv = min(max(16, triton.next_power_of_2(self.width)), 64 if q.element_size() == 2 else 32)
        self.columns = min(self.bv, 32 if self.bk <= 128 else 16)  # of a state that a program has
        self.warps = 8 if self.size == 64 else 4  # for kernels that hold several matrices of a chunk
        self.narrow = self.bk > 128 or _old(q.device)
        self.levels = self.size.bit_length() - 1
        self.sizes = {"HEADS": self.heads, "K": self.key_dim, "V": self.width, "L": self.size}
        self.share = {"SHARE": self.heads // k.shape[1]}
        self.strides = {name: (t.stride(0), t.stride(1)) for name, t in (("q", q), ("k", k), ("v", v))}

    def like(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.q.dtype, device=self.q.device)

    def per_token(self, width: int) -> Tensor:
        return self.like(self.tokens, self.heads, width)

    def number(self) -> Tensor:
        return self.like(self.tokens, self.heads, dtype=torch.float32)

    def solve(self, beta: Tensor, system: Tensor | None) -> Tensor:
        """Fills what the states are made of; -> the inverses of the chunks' systems: `system`, if it is given."""
        solved = system is not None
        system = self.per_token(self.size) if system is None else system
        self.scores, self.keys, self.values = map(self.per_token, (self.size, self.key_dim, self.width))
        self.q_scale, self.k_scale = self.number(), self.number()
        common = dict(**self.sizes, **self.share, SOLVED=solved)
        given = (self.q, self.k, self.v, self.g, beta, self.spans.chunks, system, self.scores, self.keys, self.values)
        strides = (*self.strides["q"], *self.strides["k"], *self.strides["v"])
        grid = (self.chunks * self.heads,)
        if self.channels:
            self.q_read, self.k_kept = self.per_token(self.key_dim), self.per_token(self.key_dim)
            self.decay = self.like(self.chunks, self.heads, self.key_dim, dtype=torch.float32)
            outs = (self.q_read, self.k_kept, self.q_scale, self.k_scale, self.decay)
            if self.chunks:
                channels.solve[grid](
                    *given, *outs, *strides, **common, BK=min(self.bk, 32), BV=self.bv, LEVELS=self.levels,
                    num_warps=self.warps,
                )  # fmt: skip
        else:
            self.q_read, self.k_kept = self.q, self.k
            self.decay = self.like(self.chunks, self.heads, dtype=torch.float32)
            outs = (self.q_scale, self.k_scale, self.decay)
            if self.chunks:
                scalar.solve[grid](*given, *outs, *strides, **common, BK=self.bk, BV=self.bv, num_warps=4)
        return system

    def states(self, initial: Tensor | None) -> Tensor:
        """Fills the states before chunks and the new values; -> the last states."""
        programs = self.documents * self.heads * triton.cdiv(self.width, self.columns)
        last = self.like(self.documents, self.heads, self.key_dim, self.width, dtype=torch.float32)
        self.before = self.like(self.chunks, self.heads, self.key_dim, self.width)
        self.news = self.per_token(self.width)
        if programs:
            pass_states[(programs,)](
                self.k_kept, self.keys, self.values, self.k_scale, self.decay, self.spans.borders, self.spans.firsts,
                last if initial is None else initial, self.before, self.news, last, *self.strides["k"],
                **self.sizes, **self.share, BK=self.bk, BV=self.columns, CHANNELS=self.channels,
                INITIAL=initial is not None, num_warps=4, num_stages=2,
            )  # fmt: skip
        return last

    def outputs(self) -> Tensor:
        y = self.per_token(self.width)
        if self.chunks:
            outputs[(self.chunks * self.heads * triton.cdiv(self.width, self.bv),)](
                self.q_read, self.q_scale, self.scores, self.before, self.news, y, self.spans.chunks,
                *self.strides["q"], **self.sizes, **self.share, BK=self.bk, BV=self.bv, CHANNELS=self.channels,
                num_warps=4,
            )  # fmt: skip
        return y

    def states_backward(self, grad: Tensor, grad_last: Tensor | None, initial: bool) -> Tensor | None:
        """Fills the gradients of new values and of states behind chunks; -> that of the initial states, if wanted."""
        programs = self.documents * self.heads * triton.cdiv(self.width, self.columns)
        self.grad_states, self.grad_news = torch.empty_like(self.before), torch.empty_like(self.news)
        shape = (self.documents, self.heads, self.key_dim, self.width)
        grad_initial = self.like(*shape, dtype=torch.float32) if initial else None
        spare = self.grad_states  # stands for what is neither read nor written
        if programs:
            states_backward[(programs,)](
                self.q_read, self.k_kept, self.keys, self.scores, self.q_scale, self.k_scale, self.decay, grad,
                spare if grad_last is None else grad_last, self.spans.borders, self.spans.firsts, self.grad_states,
                self.grad_news, grad_initial if initial else spare, *self.strides["q"], *self.strides["k"],
                **self.sizes, **self.share, BK=self.bk, BV=self.columns, CHANNELS=self.channels,
                LAST=grad_last is not None, INITIAL=initial, num_warps=4, num_stages=2,
            )  # fmt: skip
        return grad_initial

    def chunks_backward(self, beta: Tensor, system: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        """The gradients of q, k, v, g and beta."""
        grad_q, grad_kept, grad_read = (self.per_token(self.key_dim) for _ in range(3))
        grad_system, grad_scores = self.per_token(self.size), self.per_token(self.size)
        dv, grad_beta, grad_decay = self.per_token(self.width), self.number(), torch.empty_like(self.decay)
        dg, dbeta = torch.empty_like(self.g), torch.empty_like(beta)
        grid, spans = (self.chunks * self.heads,), self.spans
        if not self.chunks:
            return torch.zeros_like(self.q), torch.zeros_like(self.k), dv, dg, dbeta
        reads_backward[grid](
            self.v, beta, system, self.keys, self.values, self.news, self.before, self.decay, grad, self.grad_news,
            self.grad_states, spans.chunks, grad_q, grad_kept, grad_read, dv, grad_system, grad_scores, grad_beta,
            grad_decay, *self.strides["v"], **self.sizes, BK=self.bk,
            BV=16 if self.narrow else min(self.bv, 32), CHANNELS=self.channels, num_warps=self.warps,
            num_stages=2,
        )  # fmt: skip
        sizes = {name: self.sizes[name] for name in ("HEADS", "K", "L")}
        grads = (grad_system, grad_scores, grad_q, grad_kept, grad_read, grad_beta, grad_decay)
        strides = (*self.strides["q"], *self.strides["k"])
        dq, dk = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (self.q, self.k))
        units = self.per_token(self.key_dim), self.per_token(self.key_dim)
        if self.channels:
            channels_backward.pairs_backward[grid](
                self.q, self.k, self.g, beta, self.q_scale, self.k_scale, spans.chunks, *grads, *units, dg, dbeta,
                *strides, **sizes, **self.share, BK=min(self.bk, 16 if self.narrow or self.size == 32 else 32),
                LEVELS=self.levels, num_warps=self.warps, num_stages=1,
            )  # fmt: skip
        else:
            scalar.pairs_backward[grid](
                self.q, self.k, self.g, beta, spans.chunks, *grads, *units, dg, dbeta, *strides, **sizes, **self.share,
                BK=min(64, max(16, self.bk // 2)), num_warps=self.warps, num_stages=1,
            )  # fmt: skip
        groups, rows = self.k.shape[1], 32
        for x, unit, dx, scale in ((self.q, units[0], dq, self.key_dim**-0.5), (self.k, units[1], dk, 1.0)):
            scalar.unit_backward[(triton.cdiv(self.tokens, rows) * groups,)](
                x, unit, dx, self.tokens, x.stride(0), x.stride(1), scale,
                GROUPS=groups, **self.share, K=self.key_dim, BT=rows, BK=self.bk, num_warps=4,
            )  # fmt: skip
        return dq, dk, dv, dg, dbeta


class _DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, g, beta, initial, spans):  # type: ignore[no-untyped-def]
        run = _Launcher(q, k, v, g, spans)
        system = run.solve(beta, None)
        last = run.states(initial)
        ctx.save_for_backward(q, k, v, g, beta, initial, system)
        ctx.spans = spans
        ctx.set_materialize_grads(False)
        return run.outputs(), last

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, grad_last):  # type: ignore[no-untyped-def]
        q, k, v, g, beta, initial, system = ctx.saved_tensors
        if grad is None and grad_last is None:
            return (None,) * 7
        grad = torch.zeros(v.shape, dtype=v.dtype, device=v.device) if grad is None else grad.contiguous()
        run = _Launcher(q, k, v, g, ctx.spans)
        run.solve(beta, system)
        run.states(initial)
        last = None if grad_last is None else grad_last.contiguous()
        grad_initial = run.states_backward(grad, last, ctx.needs_input_grad[5])
        return *run.chunks_backward(beta, system, grad), grad_initial, None
