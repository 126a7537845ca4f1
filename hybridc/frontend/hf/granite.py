"""granite: llama with factors on the embedding, the scores, the residual sublayers and the logits."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, over, pipe, scale, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, divisor_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 32000, 32)
    h, bias = heads(c, dim), c.flag("attention_bias", False)
    factor = c.positive("attention_multiplier", 1.0)
    attn = attention(
        h,
        dim,
        rope=rope(c, theta=10000.0, max_positions=2048),
        scale=unless(factor, h.dim**-0.5),
        bias=bias,
        out_bias=bias,
        dropout=dropout(c),
    )
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    mlp = gated_mlp(c.integer("intermediate_size", 11008), act, bias=c.flag("mlp_bias", False))
    behind = scale(c.number("residual_multiplier", 1.0))
    kind = layer(
        "Layer",
        pipe("norm", "attn", behind),
        pipe("norm", "mlp", behind),
        parts={"attn": attn, "mlp": mlp},
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    return decoder(
        "granite",
        dim,
        vocab,
        [kind] * depth,
        call("rmsnorm", eps=c.number("rms_norm_eps", 1e-6)),
        tied=c.flag("tie_word_embeddings", False),
        embed={"scale": unless(c.number("embedding_multiplier", 1.0), 1.0)},
        head={"scale": over(c.positive("logits_scaling", 1.0))},
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
        "attention_multiplier": attn.scale,
        "residual_multiplier": m.scale_behind("attn"),
        "embedding_multiplier": m.embedding.scale,
        "logits_scaling": divisor_of(m.lm_head.scale),
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
        "mlp_bias": mlp.bias,
    }
