"""smollm3: llama in which every fourth layer has no positions."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, SLIDING, dropout, flags, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of, windows_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2048, 128256, 36)
    h, bias = heads(c, dim, query=16, key_value=4), c.flag("attention_bias", False)
    positions, drop = rope(c, theta=2000000.0, max_positions=32768), dropout(c)
    every = c.integer("no_rope_layer_interval", 4)
    turned = flags(c, "no_rope_layers", depth, [(i + 1) % every != 0 for i in range(depth)])
    window, used = c.integer("sliding_window", None), c.flag("use_sliding_window", False)
    sliding = used and window is not None
    types = layer_types(c, depth, [SLIDING if sliding and not r else FULL for r in turned])
    if SLIDING in types and window is None:
        c.refuse("sliding_window", None, "layer_types names windowed layers: say how wide the window is")
    c.ignore("max_window_layers")  # in published configs, read by nobody
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    mlp = gated_mlp(c.integer("intermediate_size", 11008), act, bias=c.flag("mlp_bias", False))

    def kind(rotates: bool, local: bool) -> Layer:
        attn = attention(
            h,
            dim,
            rope=positions if rotates else None,
            window=window if local else None,
            bias=bias,
            out_bias=bias,
            dropout=drop,
        )
        return layer(
            ("Rope" if rotates else "NoPE") + ("Local" if local else ""),
            pipe("norm", "attn"),
            pipe("norm", "mlp"),
            parts={"attn": attn, "mlp": mlp},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "smollm3",
        dim,
        vocab,
        [kind(r, t == SLIDING) for r, t in zip(turned, types, strict=True)],
        call("rmsnorm", eps=c.number("rms_norm_eps", 1e-6)),
        tied=c.flag("tie_word_embeddings", True),
        init=initial(c),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    turned = [a for a in m.all("attn") if a.rope is not None]
    return {
        **ends(m),
        **heads_of(attn),
        **(rope_of(turned[0].rope) if turned else {}),
        **windows_of(m),
        "no_rope_layers": [int(a.rope is not None) for a in m.each("attn")],
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
        "mlp_bias": mlp.bias,
    }
