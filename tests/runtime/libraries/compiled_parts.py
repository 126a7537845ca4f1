"""Stand-ins in torch for the modules that libraries compile from CUDA, with the same arguments.

They compute what the libraries' documentation says, and refuse what their C++ refuses of layouts and types.
"""

import sys
import types
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional as F

CALLS: list[tuple[str, dict]] = []
"""What was called, the latest last."""


def by_autograd(function, inputs, grad):
    """What a gradient of the function's result is for its inputs; in a thread of its own, since torch's dispatcher has
    left autograd where libraries' ops call their backward."""

    def run():
        leaves = [t.detach().requires_grad_() for t in inputs]
        return torch.autograd.grad(function(*leaves), leaves, grad)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def install() -> None:
    """Makes the modules known under their names."""
    for name, functions in {
        "selective_scan_cuda": {"fwd": scan_forward, "bwd": scan_backward},
        "causal_conv1d_cuda": {
            "causal_conv1d_fwd": conv_forward,
            "causal_conv1d_bwd": conv_backward,
            "causal_conv1d_update": conv_update,
        },
        "flash_attn_2_cuda": {
            "fwd": attention_forward,
            "bwd": attention_backward,
            "varlen_fwd": varlen_forward,
            "varlen_bwd": varlen_backward,
            "fwd_kvcache": cache_forward,
        },
    }.items():
        module = types.ModuleType(name)
        vars(module).update(functions)
        sys.modules[name] = module


# selective_scan_cuda: u, delta [B, D, L], A [D, N], B and C [B, G, N, L] with one group here, D [D]


def scanned(u, delta, A, B, C, D):
    """y [B, D, L] and the last state [B, D, N], fp64 inside."""
    kind = u.dtype
    u, delta, A, B, C, D = (t.double() for t in (u, delta, A, B[:, 0], C[:, 0], D))
    h = u.new_zeros(*u.shape[:2], A.shape[1])
    ys = []
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]
        h = (step * A).exp() * h + step * B[:, None, :, t] * u[:, :, t, None]
        ys.append((h * C[:, None, :, t]).sum(-1) + D * u[:, :, t])
    return torch.stack(ys, dim=2).to(kind), h.float()


def scan_forward(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    """As selective_scan.cpp: y, and pairs of a decay and a state for each chunk."""
    assert u.dtype == delta.dtype == B.dtype == C.dtype and A.dtype == D.dtype == torch.float32
    assert all(t.stride(-1) == 1 or t.shape[-1] == 1 for t in (u, delta, B, C))
    assert A.shape[1] <= 256 and B.shape == C.shape == (u.shape[0], 1, A.shape[1], u.shape[2])
    assert z is None and delta_bias is None and not delta_softplus
    y, last = scanned(u, delta, A, B, C, D)
    return y, torch.stack((torch.ones_like(last), last), dim=-1).flatten(-2)[:, :, None]


def scan_backward(u, delta, A, B, C, D, z, delta_bias, dout, x, out, dz, delta_softplus, recompute):
    """As selective_scan.cpp: gradients of u, delta, A, B, C, D and none of a bias."""
    return (*by_autograd(lambda *inputs: scanned(*inputs)[0], (u, delta, A, B, C, D), dout), None)


# causal_conv1d_cuda: x [B, D, L], weight [D, K], seq_idx int32 [B, L], initial_states [B, D, K - 1]


def convolved(x, weight, bias, seq_idx, initial, silu):
    """y [B, D, L]: taps that reach into another sequence are dropped, and before the row stand the initial states."""
    width, length = weight.shape[1], x.shape[2]
    line = F.pad(x, (width - 1, 0)) if initial is None else torch.cat((initial, x), dim=2)
    y = torch.zeros_like(x) if bias is None else bias[:, None].expand_as(x)
    for k in range(width):
        term = line[:, :, k : k + length] * weight[:, k, None]
        if seq_idx is not None:
            first = seq_idx[:, :1] if initial is not None else torch.full_like(seq_idx[:, :1], -1)
            known = torch.cat((first.expand(-1, width - 1), seq_idx), dim=1)
            term = term * (known[:, k : k + length] == seq_idx)[:, None]
        y = y + term
    return F.silu(y) if silu else y


def check_conv(x, weight, bias, seq_idx, initial):
    """What causal_conv1d.cpp refuses."""
    last = x.stride(1) == 1 and x.stride(2) > 1
    assert x.stride(1) == 1 or x.stride(2) == 1
    assert not last or (x.shape[1] % 8 == 0 and x.stride(0) % 8 == 0 and x.stride(2) % 8 == 0)
    assert x.storage_offset() % 8 == 0  # reads 16 bytes at once
    assert 2 <= weight.shape[1] <= 4 and weight.shape[0] == x.shape[1]
    assert bias is None or (bias.dtype == weight.dtype and bias.shape == x.shape[1:2])
    if seq_idx is not None:
        assert last and seq_idx.dtype == torch.int32 and seq_idx.is_contiguous()
        assert seq_idx.shape == (x.shape[0], x.shape[2])
    if initial is not None:
        assert last and initial.dtype == x.dtype and initial.stride(1) == 1
        assert initial.shape == (*x.shape[:2], weight.shape[1] - 1)


def conv_forward(x, weight, bias, seq_idx, initial_states, out, final_states_out, silu_activation):
    """As causal_conv1d.cpp: writes out."""
    CALLS.append(("conv_forward", {"seq_idx": seq_idx, "initial_states": initial_states}))
    check_conv(x, weight, bias, seq_idx, initial_states)
    assert final_states_out is None
    out.copy_(convolved(x, weight, bias, seq_idx, initial_states, silu_activation))


def conv_backward(
    x, weight, bias, dout, seq_idx, initial_states, dfinal_states, dx, dweight, dbias, dinitial_states, silu_activation
):  # fmt: skip
    """As causal_conv1d.cpp: writes dx, dweight and dbias."""
    check_conv(x, weight, bias, seq_idx, initial_states)
    inputs = (x, weight) if bias is None else (x, weight, bias)

    def function(x, weight, bias=None):
        return convolved(x, weight, bias, seq_idx, initial_states, silu_activation)

    grads = by_autograd(function, inputs, dout)
    for target, grad in zip((dx, dweight, dbias), grads, strict=False):
        target.copy_(grad)


def conv_update(x, conv_state, weight, bias, out, silu_activation, cache_seqlens, conv_state_indices):
    """As causal_conv1d.cpp: writes out, and moves conv_state on."""
    CALLS.append(("conv_update", {"conv_state": conv_state}))
    assert conv_state.dtype == x.dtype and cache_seqlens is None and conv_state_indices is None
    assert conv_state.shape == (*x.shape[:2], weight.shape[1] - 1)
    out.copy_(convolved(x, weight, bias, None, conv_state, silu_activation))
    conv_state.copy_(torch.cat((conv_state, x), dim=2)[:, :, x.shape[2] :])


# flash_attn_2_cuda: q [B, S, H, D], k and v [B, T, K, D], or the same without B for packed rows


def attended(q, k, v, scale, p_dropout, causal, left, right, softcap):
    """The queries are the last of the keys' tokens."""
    share = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(share, dim=2), v.repeat_interleave(share, dim=2)
    scores = torch.einsum("bshd,bthd->bhst", q, k) * scale
    if softcap > 0:
        scores = (scores / softcap).tanh() * softcap
    place = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    key = torch.arange(k.shape[1])
    seen = key <= place + (0 if causal else k.shape[1] if right < 0 else right)
    if left >= 0:
        seen = seen & (key >= place - left)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("bhst,bthd->bshd", F.dropout(weights, p_dropout), v)


def check_attention(q, k, v, p_dropout, softcap):
    """What flash_api.cpp refuses, but for the dtype: fp32 is what tests are exact in."""
    assert q.dtype == k.dtype == v.dtype and all(t.stride(-1) == 1 for t in (q, k, v))
    assert k.shape == v.shape and q.shape[-1] == k.shape[-1] and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    assert q.shape[-2] % k.shape[-2] == 0 and not (softcap and p_dropout)


def attention_forward(
    q, k, v, out, alibi_slopes, p_dropout, scale, causal, left, right, softcap, return_softmax, generator
):  # fmt: skip
    """As flash_api.cpp: out, logsumexp, weights and the state of the generator."""
    CALLS.append(("attention_forward", {"p_dropout": p_dropout}))
    check_attention(q, k, v, p_dropout, softcap)
    y = attended(q, k, v, scale, p_dropout, causal, left, right, softcap)
    return y, q.new_zeros(q.shape[0], q.shape[2], q.shape[1]), q.new_zeros(0), torch.zeros(2, dtype=torch.int64)


def attention_backward(
    dout, q, k, v, out, lse, dq, dk, dv, alibi_slopes, p_dropout, scale, causal, left, right, softcap, *rest
):  # fmt: skip
    """As flash_api.cpp: writes dq, dk and dv."""

    def function(q, k, v):
        return attended(q, k, v, scale, 0.0, causal, left, right, softcap)

    for target, grad in zip((dq, dk, dv), by_autograd(function, (q, k, v), dout), strict=True):
        target.copy_(grad)
    return dq, dk, dv, torch.zeros_like(lse)


def pieces(starts, *tensors):
    """The sequences of packed tensors, each as a batch of one."""
    assert starts.dtype == torch.int32 and starts[0] == 0 and starts[-1] == len(tensors[0])
    return [[t[s:e][None] for t in tensors] for s, e in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


def varlen_forward(
    q, k, v, out, cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes, max_seqlen_q,
    max_seqlen_k, p_dropout, scale, zero_tensors, causal, left, right, softcap, return_softmax, generator,
):  # fmt: skip
    """As flash_api.cpp, sequence by sequence."""
    CALLS.append(("varlen_forward", {"p_dropout": p_dropout}))
    check_attention(q, k, v, p_dropout, softcap)
    assert max_seqlen_q == cu_seqlens_q.diff().max() and max_seqlen_k == cu_seqlens_k.diff().max()
    parts = zip(pieces(cu_seqlens_q, q), pieces(cu_seqlens_k, k, v), strict=True)
    ys = [attended(a, b, c, scale, p_dropout, causal, left, right, softcap)[0] for (a,), (b, c) in parts]
    return torch.cat(ys), q.new_zeros(q.shape[1], q.shape[0]), q.new_zeros(0), torch.zeros(2, dtype=torch.int64)


def varlen_backward(
    dout, q, k, v, out, lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, alibi_slopes, max_seqlen_q, max_seqlen_k,
    p_dropout, scale, zero_tensors, causal, left, right, softcap, *rest,
):  # fmt: skip
    """As flash_api.cpp, sequence by sequence."""
    queries = pieces(cu_seqlens_q, q, dout, dq)
    for (a, grad, da), (b, c, db, dc) in zip(queries, pieces(cu_seqlens_k, k, v, dk, dv), strict=True):
        attention_backward(grad, a, b, c, None, lse, da, db, dc, None, 0.0, scale, causal, left, right, softcap)
    return dq, dk, dv, torch.zeros_like(lse)


def cache_forward(
    q, kcache, vcache, k, v, seqlens_k, cos, sin, batch_idx, leftpad, block_table, alibi_slopes, out, scale, causal,
    left, right, softcap, interleaved, num_splits,
):  # fmt: skip
    """As flash_api.cpp: each row sees the first seqlens_k of its cache's places."""
    CALLS.append(("cache_forward", {}))
    check_attention(q, kcache, vcache, 0.0, softcap)
    assert k is v is cos is sin is batch_idx is leftpad is block_table is None and seqlens_k.dtype == torch.int32
    rows = [
        attended(
            q[n : n + 1], kcache[n : n + 1, :held], vcache[n : n + 1, :held], scale, 0.0, causal, left, right, softcap
        )
        for n, held in enumerate(seqlens_k.tolist())
    ]
    return torch.cat(rows), None
