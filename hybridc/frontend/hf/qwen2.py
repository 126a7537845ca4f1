"""qwen2: llama with biases on queries, keys and values, and windows in the last layers."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, SLIDING, dropout, initial, sizes, window_types
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of, windows_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 151936, 32)
    eps = c.number("rms_norm_eps", 1e-6)
    h = heads(c, dim, key_value=32)
    positions, drop = rope(c, theta=10000.0, max_positions=32768), dropout(c)
    types, window = window_types(c, depth)
    mlp = gated_mlp(c.integer("intermediate_size", 22016), c.choice("hidden_act", "silu", ACTIVATIONS))

    def kind(sliding: bool) -> Layer:
        attn = attention(
            h,
            dim,
            rope=positions,
            window=window if sliding else None,
            bias=True,
            dropout=drop,
        )
        return layer(
            "Local" if sliding else "Layer" if FULL not in types or SLIDING not in types else "Global",
            pipe("norm", "attn"),
            pipe("norm", "mlp"),
            parts={"attn": attn, "mlp": mlp},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "qwen2",
        dim,
        vocab,
        [kind(t == SLIDING) for t in types],
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
        **windows_of(m),
        "rms_norm_eps": m.op("norm").eps,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
    }
