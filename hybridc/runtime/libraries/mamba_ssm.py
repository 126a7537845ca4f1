"""mamba-ssm (Gu and Dao): scans of Mamba and Mamba-2, and the gated norm.

The scan of Mamba-2 and the norm are Triton kernels, Mamba's scan is one in CUDA. Products are in the inputs' dtype, or
in TF32 for fp32 inputs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from hybridc.runtime.errors import UsageError
from hybridc.runtime.libraries.documents import numbers, trained
from hybridc.runtime.libraries.missing import missing
from hybridc.runtime.ops import norms
from hybridc.runtime.ops.autocast import without_autocast

try:
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
except ImportError as error:
    raise missing("mamba-ssm", error) from error

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState, ScanState
    from hybridc.runtime.context import Context

CHUNKS = (16, 256)
"""Tokens of the shortest and the longest chunk that the scan of Mamba-2 is asked for; its kernels want powers of 2."""


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
    chunk: int = CHUNKS[1],
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """`hybridc.runtime.ops.ssd` with mamba-ssm's kernels: h_t = exp(dt_t a) h_{t-1} + dt_t x_t ⊗ b_t, y_t = h_t c_t + d
    x_t.

    Shapes are those of the op. Documents without states are computed in one call; with states, each in a call of its
    own, since the kernels take a first state for a row, not for a document.
    """
    before = initial_state if state is None else state.ssm
    packed = ctx is not None and ctx.borders is not None
    single = all(n == 1 for n in ctx.lengths) if packed else x.shape[1] == 1
    if single and before is not None and not trained(x, dt, a, b, c, d, before):
        last = _writable(state, before, copy=return_state)
        y = _ssd_step(*(t.flatten(0, 1) for t in (x, dt)), a, *(t.flatten(0, 1) for t in (b, c)), d, last).view_as(x)
    else:
        length = min(max(1 << (chunk - 1).bit_length(), CHUNKS[0]), CHUNKS[1])
        if not packed:
            y, last = _rows(x, dt, a, b, c, d, length, before)
        elif before is None and not return_state:
            y = mamba_chunk_scan_combined(x, dt, a, b, c, length, D=d, seq_idx=numbers(ctx, x.device))
            last = None
        else:
            y, last = _documents(x, dt, a, b, c, d, length, before, ctx)
    if state is not None and last is not state.ssm:
        state.keep_ssm(last)
    return (y, last) if return_state else y


def _rows(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None, length: int, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Rows that are a document each: y and the last states [B, H, P, N]."""
    y, last = mamba_chunk_scan_combined(x, dt, a, b, c, length, D=d, initial_states=before, return_final_states=True)
    return y, last


def _documents(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    length: int,
    before: Tensor | None,
    ctx: Context,
) -> tuple[Tensor, Tensor]:
    """A packed row, one call for each document: y and the last states [documents, H, P, N]."""
    ys, ends = [], []
    for n, (start, end) in enumerate(pairwise(ctx.borders)):
        first = None if before is None else before[n : n + 1]
        if start < end:
            part = slice(start, end)
            y, first = _rows(x[:, part], dt[:, part], a, b[:, part], c[:, part], d, length, first)
            ys.append(y)
        elif first is None:
            first = x.new_zeros(1, *x.shape[2:], b.shape[3], dtype=torch.float32)
        ends.append(first)
    return torch.cat(ys, dim=1), torch.cat(ends)


def _ssd_step(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None, last: Tensor
) -> Tensor:  # fmt: skip
    """One token a document: x [B, H, P], dt [B, H], b and c [B, G, N]; writes the state [B, H, P, N]."""
    heads, width, size = last.shape[1:]
    skip = x.new_zeros(()).expand(heads) if d is None else d
    return selective_state_update(
        last,
        x,
        dt[..., None].expand(-1, -1, width),
        a[:, None, None].expand(heads, width, size),
        b,
        c,
        D=skip[:, None].expand(heads, width),
        dt_bias=_no_bias(a, heads, width),
    )


def _no_bias(a: Tensor, *shape: int) -> Tensor:
    """Zeros to add to dt: selective_state_update (of 2.3.2) reads the strides of a bias that it takes for optional."""
    return a.new_zeros(()).expand(*shape)


def _writable(state: MambaState | ScanState | None, before: Tensor, *, copy: bool = False) -> Tensor:
    """The tensor that a step may write its state into: the cache's own, unless a backward may want the old values."""
    if copy or state is None or torch.is_grad_enabled():
        return before.clone()
    increment_version(before)
    return before


@without_autocast
def selective_scan(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, ctx: Context, state: MambaState | None = None
) -> Tensor:  # fmt: skip
    """`hybridc.runtime.ops.selective_scan` with mamba-ssm's kernels: h_t = exp(dt_t a) h_{t-1} + dt_t b_t u_t, y_t =
    c_t h_t + d u_t.

    Shapes are those of the op; all inputs are read as fp32, as dt comes. The scan starts from zeros and knows of no
    documents: each is a call of its own, and one that goes on from a cached state takes a step for each token.

    Raises UsageError where gradients are to come from such steps, which have none.
    """
    dtype, shape = u.dtype, u.shape
    u, dt, a, b, c, d = (t.float() for t in (u, dt, a, b, c, d))
    if state is None:
        spans = [slice(None)] if ctx.borders is None else [slice(s, e) for s, e in pairwise(ctx.borders) if s < e]
        ys = [_scan(u[:, s], dt[:, s], a, b[:, s], c[:, s], d)[0] for s in spans]
        return torch.cat(ys, dim=1).to(dtype)
    wanted = trained(u, dt, a, b, c, d)
    if wanted and any(ctx.past):
        raise UsageError(
            "mamba-ssm's selective scan cannot go on from a cached state and have gradients",
            "run under torch.no_grad(), start from an empty cache, or compile without mamba_ssm",
        )
    if all(n == 1 for n in ctx.lengths):
        u, dt, b, c = (t.flatten(0, 1)[:, None] for t in (u, dt, b, c))
    if ctx.borders is None or u.shape[1] == 1:
        stepped = any(ctx.past) or (u.shape[1] == 1 and not wanted)
        y, last = _steps(u, dt, a, b, c, d, _writable(state, state.ssm)) if stepped else _scan(u, dt, a, b, c, d)
    else:
        y, last = _packed(u, dt, a, b, c, d, ctx, state.ssm)
    if last is not state.ssm:
        state.keep_ssm(last)
    return y.to(dtype).view(shape)


def _scan(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Rows from their first token on: y [B, S, D] and the last states [B, D, N]."""
    u, dt, b, c = (t.transpose(1, 2) for t in (u, dt, b, c))
    y, last = selective_scan_fn(u, dt, a, b, c, D=d, return_last_state=True)
    return y.transpose(1, 2), last


def _steps(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, last: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Rows that go on from the states `last` [B, D, N], which are written: y [B, S, D] and `last`."""
    bias = _no_bias(a, a.shape[0])
    ys = [
        selective_state_update(last, u[:, t], dt[:, t], a, b[:, t], c[:, t], D=d, dt_bias=bias)
        for t in range(u.shape[1])
    ]
    return torch.stack(ys, dim=1), last


def _packed(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, ctx: Context, before: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A packed row, one document after the other: y [1, T, D] and the last states [documents, D, N]."""
    ys, ends = [], []
    for n, (start, end) in enumerate(pairwise(ctx.borders)):
        last = before[n : n + 1]
        if start < end:
            part = slice(start, end)
            inputs = (u[:, part], dt[:, part], a, b[:, part], c[:, part], d)
            y, last = _steps(*inputs, last.clone()) if ctx.past[n] else _scan(*inputs)
            ys.append(y)
        ends.append(last)
    return torch.cat(ys, dim=1), torch.cat(ends)


class GatedRMSNorm(norms.GatedRMSNorm):
    """`hybridc.runtime.ops.GatedRMSNorm` with mamba-ssm's kernels. Parameter: weight [dim].

    Raises UsageError for another gate than silu's.
    """

    def __init__(self, dim: int, *, eps: float, groups: int = 1, gate_first: bool = True, act: str = "silu") -> None:
        if act != "silu":
            raise UsageError(f"mamba-ssm's norm has no gate by {act}", "compile without mamba_ssm, or use act=silu")
        super().__init__(dim, eps=eps, groups=groups, gate_first=gate_first)

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """x and gate [..., dim] -> [..., dim], in x's dtype."""
        size = None if self.groups == 1 else x.shape[-1] // self.groups
        return rmsnorm_fn(
            x, self.weight, None, z=gate, eps=self.eps, group_size=size, norm_before_gate=not self.gate_first
        )
