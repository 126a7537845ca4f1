"""jamba: Mamba and attention layers in turn, every few with experts for a feed-forward part (Lieber et al., 2024)."""

from __future__ import annotations

import math
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import Layer, Names, decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, aux_of, ends, heads_of, misfit
from hybridc.frontend.hf.mambas import rank
from hybridc.frontend.hf.parts import Part, attention, aux_loss, gated_mlp, heads, mamba, moe
from hybridc.frontend.hf.weightmap import WeightMap

_NAMES = Names(norm="model.final_layernorm")


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 65536, 32)
    c.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"})
    # how torch code of theirs scans; how many logits it computes
    c.ignore("use_mambapy", "use_associative_scan", "calc_logits_for_entire_prompt", "n_ctx")
    c.refuse_unless("mamba_inner_layernorms", True, [True], "the mixers of this family have norms on dt, B and C")
    c.refuse_unless("sliding_window", None, [None], "attention of this family sees all tokens")
    eps = c.number("rms_norm_eps", 1e-6)
    norm = call("rmsnorm", eps=eps)
    hidden = c.integer("intermediate_size", 14336)
    count = c.integer("num_experts", c.integer("num_local_experts", 16))
    # probabilities of a router without renormalisation
    experts = moe(
        count,
        hidden,
        c.integer("num_experts_per_tok", 2),
        at="feed_forward.",
        router="router.weight",
        renormalize=False,
        aux_coef=aux_loss(c, 0.001),
    )
    parts = {
        "attn": attention(heads(c, dim, key_value=8), dim, dropout=dropout(c)),
        "ssm": _mixer(c, dim, norm),
        "mlp": gated_mlp(hidden, at="feed_forward."),
        "moe": experts,
    }
    attends = _every(c, "attn_layer", (8, 4), depth)
    routes = _every(c, "expert_layer", (2, 1), depth)

    def kind(i: int) -> Layer:
        mixer, feed = "attn" if attends[i] else "ssm", "moe" if routes[i] and count > 1 else "mlp"
        return layer(
            {"attn": "Attention", "ssm": "Mamba"}[mixer] + {"moe": "Moe", "mlp": ""}[feed],
            pipe("norm", mixer),
            pipe("norm", feed),
            parts={mixer: parts[mixer], feed: parts[feed]},
            norms=("input_layernorm", "pre_ff_layernorm"),
        )

    return decoder(
        "jamba",
        dim,
        vocab,
        [kind(i) for i in range(depth)],
        norm,
        tied=c.flag("tie_word_embeddings", False),
        names=_NAMES,
        init=initial(c),
    )


def _every(c: Config, name: str, default: tuple[int, int], depth: int) -> list[bool]:
    """The layers whose index divided by `name`_period leaves `name`_offset."""
    period, offset = c.integer(f"{name}_period", default[0]), c.take(f"{name}_offset", default[1], int, low=0)
    if offset >= period:
        c.refuse(f"{name}_offset", offset, f"use an offset below the period, {period}")
    return [i % period == offset for i in range(depth)]


def _mixer(c: Config, dim: int, norm: ast.Call) -> Part:
    return mamba(
        "mamba.",
        state=unless(c.integer("mamba_d_state", 16), 16),
        inner=unless(c.integer("mamba_expand", 2) * dim, 2 * dim),
        conv=unless(c.integer("mamba_d_conv", 4), 4),
        dt_rank=unless(rank(c, "mamba_dt_rank", dim), math.ceil(dim / 16)),
        conv_bias=unless(c.flag("mamba_conv_bias", True), True),
        proj_bias=unless(c.flag("mamba_proj_bias", False), False),
        norm=norm,
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, ssm, mlp, experts = (m.maybe(label) for label in ("attn", "ssm", "mlp", "moe"))
    fields: dict[str, Any] = {**ends(m), "rms_norm_eps": m.op("norm").eps}
    if attn is not None:
        fields |= {**heads_of(attn), "attention_dropout": attn.dropout}
    if ssm is not None:
        fields |= {
            "mamba_d_state": ssm.state,
            "mamba_expand": ssm.inner // m.embedding.dim,
            "mamba_d_conv": ssm.conv,
            "mamba_dt_rank": ssm.dt_rank,
            "mamba_conv_bias": ssm.conv_bias,
            "mamba_proj_bias": ssm.proj_bias,
        }
    if experts is not None:
        fields |= {**aux_of(experts), "num_experts": experts.experts, "num_experts_per_tok": experts.top_k}
    period, offset = _period_of(m.layers_with("attn"))
    expert_period, expert_offset = _period_of(m.layers_with("moe"))
    return {
        **fields,
        "intermediate_size": (mlp or experts).hidden,
        "attn_layer_period": period,
        "attn_layer_offset": offset,
        "expert_layer_period": expert_period,
        "expert_layer_offset": expert_offset,
    }


def _period_of(flags: list[bool]) -> tuple[int, int]:
    """The period and the offset of the layers that are marked; a period beyond the last layer for none or one."""
    marked = [i for i, flag in enumerate(flags) if flag]
    offset = marked[0] if marked else len(flags)
    period = marked[1] - marked[0] if len(marked) > 1 else len(flags) + 1
    if flags != [i % period == offset for i in range(len(flags))]:
        raise misfit("layers with attention or experts are not at equal distances")
    return period, offset
