"""olmoe: norms over all query heads and all key heads, clipped projections, experts in every layer."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, aux_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import attention, aux_loss, heads, moe
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2048, 50304, 16)
    eps, bias = c.number("rms_norm_eps", 1e-5), c.flag("attention_bias", False)
    attn = attention(
        heads(c, dim, query=16),
        dim,
        rope=rope(c, theta=10000.0, max_positions=4096),
        bias=bias,
        out_bias=bias,
        qk_norm=call("rmsnorm", eps=eps),
        qk_norm_over="all",
        clip=c.positive("clip_qkv", None),
        dropout=dropout(c),
    )
    experts = moe(
        c.integer("num_experts", c.integer("num_local_experts", 64)),
        c.integer("intermediate_size", 2048),
        c.integer("num_experts_per_tok", 8),
        act=c.choice("hidden_act", "silu", ACTIVATIONS),
        renormalize=unless(c.flag("norm_topk_prob", False), True),
        aux_coef=aux_loss(c, 0.01),
    )
    kind = layer(
        "Layer",
        pipe("norm", "attn"),
        pipe("norm", "moe"),
        parts={"attn": attn, "moe": experts},
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    return decoder(
        "olmoe",
        dim,
        vocab,
        [kind] * depth,
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, experts = m.op("attn"), m.op("moe")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        **aux_of(experts),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "clip_qkv": attn.clip,
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "norm_topk_prob": experts.renormalize,
        "intermediate_size": experts.hidden,
        "hidden_act": activation_of(experts),
    }
