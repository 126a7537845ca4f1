"""Mamba-2's scan in Triton: `hybridc.runtime.ops.ssd` for GPUs, forward, backward and token by token.

bf16 and fp16 inputs meet in tensor cores and are summed in fp32; running sums of dt a are fp64. States between chunks
are kept as bf16 where x is, else as fp32. fp32 inputs are multiplied in three TF32 products, which gives fp32's
precision, or in one where `torch.backends.cuda.matmul.allow_tf32` is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels import ssd_backward, ssd_forward
from hybridc.runtime.kernels.ssd_chunks import LONGEST, Chunks
from hybridc.runtime.kernels.variant import Variant

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState, ScanState
    from hybridc.runtime.context import Context


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
    chunk: int = LONGEST,
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """h_t = exp(dt_t a) h_{t-1} + dt_t x_t ⊗ b_t, y_t = h_t c_t + d x_t, for each head and document.

    x [B, S, H, P], dt [B, S, H] after softplus, a [H] negative, b and c [B, S, G, N] (head h reads group h // (H / G)),
    d [H] -> y [B, S, H, P] in x's dtype. Documents are the context's, or the rows without one. They start from the
    cache entry `state`, which then holds their ends, or from `initial_state` [documents, H, P, N], or from zeros. With
    `return_state` also the documents' last states, fp32. `chunk` bounds the chunks, which changes rounding only.

    Raises UsageError for fp64.
    """
    if torch.float64 in (x.dtype, dt.dtype, b.dtype, c.dtype):
        raise UsageError("the scan's kernels sum in fp32, not in fp64", "call hybridc.runtime.ops.ssd")
    initial = initial_state if state is None else state.ssm
    trained = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, dt, a, b, c, d, initial)
    )  # fmt: skip
    if (ctx is None or ctx.borders is None) and x.shape[1] == 1 and initial is not None and not trained:
        y, last = _step(x, dt, a, b, c, d, initial, in_place=_owned(state) and not return_state)
    else:
        chunks = Chunks.make(x, chunk, ctx)
        if initial is not None:
            initial = initial.reshape(chunks.documents, *x.shape[2:], b.shape[3])
        y, last = _Scan.apply(x, dt, a, b, c, d, initial, chunks)  # type: ignore[no-untyped-call]
    if state is not None and last is not state.ssm:
        state.keep_ssm(last)
    return (y, last) if return_state else y


def _owned(state: MambaState | ScanState | None) -> bool:
    """Whether a step may write into the entry's own tensor."""
    return state is not None and not torch.is_grad_enabled() and state.ssm.is_contiguous()


def _rows(x: Tensor) -> Tensor:
    """With neighbouring channels side by side, as the kernels read them; all else may be any way apart."""
    return x if x.stride(-1) == 1 else x.contiguous()


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dt, a, b, c, d, initial, chunks):  # type: ignore[no-untyped-def]
        ctx.dtypes = [t.dtype for t in (x, b, c)]
        if len(set(ctx.dtypes)) > 1:
            x, b, c = x.float(), b.float(), c.float()
        x, b, c, a = _rows(x), _rows(b), _rows(c), a.contiguous()
        d = None if d is None else d.contiguous()
        initial = None if initial is None else initial.contiguous()
        tf32 = x.dtype != torch.float32 or torch.backends.cuda.matmul.allow_tf32
        ctx.precision = "tf32" if tf32 else "tf32x3"
        kept = torch.bfloat16 if x.dtype == torch.bfloat16 else torch.float32
        times = ssd_forward.running_times(dt, a, chunks)
        added = ssd_forward.chunk_states(x, b, times, chunks, ctx.precision, to_end=True)
        before, last = ssd_forward.pass_states(added, initial, times, chunks, kept)
        y = ssd_forward.chunk_scan(x, b, c, d, times, before, chunks, ctx.precision)
        ctx.save_for_backward(x, dt, a, b, c, d, times, before)
        ctx.chunks, ctx.initial = chunks, None if initial is None else initial.dtype
        ctx.set_materialize_grads(False)
        return y.to(ctx.dtypes[0]), last

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, grad_last):  # type: ignore[no-untyped-def]
        x, dt, a, b, c, d, times, before = ctx.saved_tensors
        grad = torch.zeros_like(x) if grad is None else _rows(grad.to(x.dtype))
        grad_last = None if grad_last is None else grad_last.contiguous()
        dx, ddt, da, db, dc, dd, dinitial = ssd_backward.ssd_backward(
            grad, grad_last, x, dt, a, b, c, d, times, before, ctx.chunks, ctx.precision
        )
        dx, db, dc = (t.to(dtype) for t, dtype in zip((dx, db, dc), ctx.dtypes, strict=True))
        return dx, ddt, da, db, dc, dd, None if ctx.initial is None else dinitial.to(ctx.initial), None


def _step(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None, state: Tensor, *, in_place: bool
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y [B, 1, H, P] and the states behind the token, [B, H, P, N] fp32: `state` itself, or a new tensor."""
    rows, _, heads, wide = x.shape
    groups, size = b.shape[2:]
    x, b, c = _rows(x), _rows(b), _rows(c)
    state = state.contiguous()
    new = state if in_place else torch.empty(rows, heads, wide, size, dtype=torch.float32, device=x.device)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    columns = triton.next_power_of_2(size)
    tall = max(1, min(triton.next_power_of_2(wide), 4096 // columns))
    _step_kernel[(rows * heads * triton.cdiv(wide, tall),)](
        x, dt, a, b, c, d, state, new, y, heads, heads // groups, x.stride(0), x.stride(2), dt.stride(0), dt.stride(2),
        b.stride(0), b.stride(2), c.stride(0), c.stride(2), *a.stride(), 1 if d is None else d.stride(0),
        P=wide, N=size, BLOCK_P=tall, BLOCK_N=columns,
    )  # fmt: skip
    if in_place:
        increment_version(state)  # a backward that has kept it must fail, as after torch's own writes
    return y, new


@triton.jit
def _step_kernel(
    x, dt, a, b, c, d, state, new, y, heads, share, x_row, x_head, dt_row, dt_head, b_row, b_group, c_row, c_group,
    a_head, d_head,
    P: tl.constexpr, N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    parts: tl.constexpr = (P + BLOCK_P - 1) // BLOCK_P
    program = tl.program_id(0).to(tl.int64)
    head, row = (program // parts) % heads, program // parts // heads
    p, n = (program % parts).to(tl.int32) * BLOCK_P + tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_N)
    inside = (p < P)[:, None] & (n < N)[None, :]
    at = (row * heads + head) * (P * N) + p[:, None] * N + n[None, :]
    step = tl.load(dt + row * dt_row + head * dt_head).to(tl.float32)
    rate = tl.load(a + head * a_head).to(tl.float32)
    v = tl.load(x + row * x_row + head * x_head + p, mask=p < P, other=0).to(tl.float32)
    key = tl.load(b + row * b_row + head // share * b_group + n, mask=n < N, other=0).to(tl.float32)
    query = tl.load(c + row * c_row + head // share * c_group + n, mask=n < N, other=0).to(tl.float32)
    h = tl.load(state + at, mask=inside, other=0).to(tl.float32) * tl.exp(step * rate)
    h += (step * v)[:, None] * key[None, :]
    tl.store(new + at, h, mask=inside)
    total = tl.sum(h * query[None, :], 1)
    if d is not None:
        total += tl.load(d + head * d_head).to(tl.float32) * v
    tl.store(y + (row * heads + head) * P + p, total.to(y.dtype.element_ty), mask=p < P)


VARIANTS = (
    *ssd_forward.VARIANTS,
    *ssd_backward.VARIANTS,
    Variant(
        _step_kernel,
        {"x": "*bf16:16", "dt": "*fp32:16", "a": "*fp32:16", "b": "*bf16:16", "c": "*bf16:16", "d": "*fp32:16"}
        | {"state": "*fp32:16", "new": "*fp32:16", "y": "*bf16:16", "heads": "i32:16", "share": "i32"}
        | ssd_forward.strides("x_row", "x_head", "dt_row", "b_row", "b_group", "c_row", "c_group"),
        {"dt_head": 1, "a_head": 1, "d_head": 1, "P": 64, "N": 128, "BLOCK_P": 32, "BLOCK_N": 128},
    ),
)
