"""olmo2: norms behind the sublayers, and norms over all query heads and all key heads."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 50304, 32)
    eps, bias = c.number("rms_norm_eps", 1e-5), c.flag("attention_bias", False)
    attn = attention(
        heads(c, dim),
        dim,
        rope=rope(c, theta=10000.0, max_positions=2048),
        bias=bias,
        out_bias=bias,
        qk_norm=call("rmsnorm", eps=eps),
        qk_norm_over="all",
        dropout=dropout(c),
    )
    mlp = gated_mlp(c.integer("intermediate_size", 11008), c.choice("hidden_act", "silu", ACTIVATIONS))
    kind = layer(
        "Layer",
        pipe("attn", "norm"),
        pipe("mlp", "norm"),
        parts={"attn": attn, "mlp": mlp},
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    )
    return decoder(
        "olmo2",
        dim,
        vocab,
        [kind] * depth,
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
    }
