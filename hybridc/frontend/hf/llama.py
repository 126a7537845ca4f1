"""llama: pre-norm attention and gated mlp."""

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
    dim, vocab, depth = sizes(c, 4096, 32000, 32)
    c.refuse_unless("rope_interleaved", False, [False], "rotary pairs are the two halves of a head")
    c.ignore("is_llama_config")  # in SmolLM's configs, which are llama's
    bias = c.flag("attention_bias", False)
    positions = rope(c, theta=10000.0, max_positions=2048)
    attn = attention(heads(c, dim), dim, rope=positions, bias=bias, out_bias=bias, dropout=dropout(c))
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    mlp = gated_mlp(c.integer("intermediate_size", 11008), act, bias=c.flag("mlp_bias", False))
    kind = layer(
        "Layer",
        pipe("norm", "attn"),
        pipe("norm", "mlp"),
        parts={"attn": attn, "mlp": mlp},
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    return decoder(
        "llama",
        dim,
        vocab,
        [kind] * depth,
        call("rmsnorm", eps=c.number("rms_norm_eps", 1e-6)),
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
        "mlp_bias": mlp.bias,
    }
