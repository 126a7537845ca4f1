"""fla (flash-linear-attention): Triton kernels of linear attention and gated recurrences.

Products are in the inputs' dtype, or in TF32 for fp32 inputs. Documents go to the kernels as offsets, each with a first
state of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hybridc.runtime.libraries.documents import offsets, trained
from hybridc.runtime.libraries.missing import missing
from hybridc.runtime.ops.autocast import without_autocast
from hybridc.runtime.ops.lightning_attention import alibi_slopes
from hybridc.runtime.ops.rg_lru import entering

try:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
    from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
    from fla.ops.kda import chunk_kda, fused_recurrent_kda
    from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla
except ImportError as error:
    raise missing("fla-core", error) from error

if TYPE_CHECKING:
    from hybridc.runtime.cache import MambaState, ScanState
    from hybridc.runtime.context import Context

__all__ = ["alibi_slopes", "gated_delta_rule", "lightning_attention", "rg_lru"]


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
    """`hybridc.runtime.ops.gated_delta_rule` with fla's kernels: S ← exp(g_t) S; S ← S + β_t k_t (v_t - k_tᵀ S)ᵀ; y_t =
    q_tᵀ S, with keys and queries of length 1, queries times key_dim^-0.5.

    Shapes are those of the op: g [B, S, heads] goes to the kernels of Gated DeltaNet, [B, S, heads, key_dim] to those
    of KDA. Where no document has more than one token and no backward follows, the kernels that go token by token are
    used.
    """
    stepped = state is not None and max(ctx.lengths) == 1 and not trained(q, k, v, g, beta)
    if g.dim() == 3:
        rule = fused_recurrent_gated_delta_rule if stepped else chunk_gated_delta_rule
    else:
        rule = fused_recurrent_kda if stepped else chunk_kda
    return _ruled(rule, q, k, v, ctx, state, g=g.float(), beta=beta.float(), use_qk_l2norm_in_kernel=True)


@without_autocast
def lightning_attention(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, ctx: Context, state: ScanState | None = None, *, chunk: int = 64
) -> Tensor:
    """`hybridc.runtime.ops.lightning_attention` with fla's kernels: y_t = q_t Σ over s <= t of exp(-slope (t - s)) k_s
    v_sᵀ.

    Shapes are those of the op; slopes get no gradient. The chunks' length is fla's choice, whatever `chunk` is.
    """
    stepped = state is not None and max(ctx.lengths) == 1 and not trained(q, k, v)
    rule = fused_recurrent_simple_gla if stepped else chunk_simple_gla
    # given as one a head, steep slopes overflow in a last chunk that is not full (0.6.0)
    decays = {"g_gamma": -slopes} if stepped else {"g": (-slopes).expand(v.shape[:3])}
    return _ruled(rule, q, k, v, ctx, state, **decays, scale=1.0, state_v_first=True)


def _ruled(
    rule: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ctx: Context,
    state: MambaState | ScanState | None,
    **options: Any,
) -> Tensor:
    """One of fla's rules over the documents, from the states that a cache entry has, which then holds the last ones."""
    y, last = rule(
        q,
        k,
        v,
        initial_state=None if state is None else state.ssm,
        output_final_state=state is not None,
        cu_seqlens=offsets(ctx, torch.int64, v.device),
        **options,
    )
    if state is not None:
        state.keep_ssm(last)
    return y


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
    """`hybridc.runtime.ops.rg_lru` with fla's kernels of HGRN, whose recurrence h_t = exp(g_t) h_{t-1} + x_t is its
    own: gates are made in torch.

    Shapes are those of the op. Plain rows are computed in chunks; documents and steps token by token, since the chunked
    kernel knows of no documents.
    """
    log_a, added = entering(x, input_gate, recurrence_gate, rate, ctx, c)
    before = None if state is None else state.ssm
    if ctx.borders is None and x.shape[1] > 1:
        h, last = chunk_hgrn(added, log_a, initial_state=before, output_final_state=state is not None)
    else:
        h, last = fused_recurrent_hgrn(
            added,
            log_a,
            initial_state=before,
            output_final_state=state is not None,
            cu_seqlens=offsets(ctx, torch.int64, x.device),
        )
    if state is not None:
        state.keep_ssm(last)
    return h.to(x.dtype)
