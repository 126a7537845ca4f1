"""mixtral: llama's attention, and a mixture of gated experts with renormalised softmax routing."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, normal_init, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.inverse import Found, activation_of, aux_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import attention, aux_loss, heads, moe
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = (
        c.integer("hidden_size", 4096),
        c.integer("vocab_size", 32000),
        c.integer("num_hidden_layers", 32),
    )
    c.refuse_unless("router_jitter_noise", 0.0, (0, 0.0), "noise on the router's input in training")
    attn = attention(
        heads(c, dim, key_value=8),
        dim,
        rope=rope(c, theta=1e6, max_positions=4096 * 32),
        window=c.integer("sliding_window", None),
        dropout=unless(c.share("attention_dropout", 0.0), 0.0),
    )
    experts = moe(
        c.integer("num_local_experts", 8),
        c.integer("intermediate_size", 14336),
        c.integer("num_experts_per_tok", 2),
        at="block_sparse_moe.",
        each=("w1", "w3"),
        each_down="w2",
        fused_at="mlp.",
        act=c.choice("hidden_act", "silu", ACTIVATIONS),
        aux_coef=aux_loss(c, 0.001),
    )
    kind = layer(
        "Layer",
        pipe("norm", "attn"),
        pipe("norm", "moe"),
        parts={"attn": attn, "moe": experts},
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    return decoder(
        "mixtral",
        dim,
        vocab,
        [kind] * depth,
        call("rmsnorm", eps=c.number("rms_norm_eps", 1e-5)),
        tied=c.flag("tie_word_embeddings", False),
        init=normal_init(c.number("initializer_range", 0.02)),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, experts = m.op("attn"), m.op("moe")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        **aux_of(experts),
        "sliding_window": attn.window,
        "attention_dropout": attn.dropout,
        "num_local_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "intermediate_size": experts.hidden,
        "hidden_act": activation_of(experts),
        "rms_norm_eps": m.op("norm").eps,
    }
