"""cohere2: attention and mlp side by side behind one layer norm; windowed layers rotate, full ones do not."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, SLIDING, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of, types_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 8192, 256000, 40)
    h, bias = heads(c, dim, query=64), c.flag("attention_bias", False)
    positions, drop = rope(c, theta=10000.0, max_positions=8192, interleaved=True), dropout(c)
    window, every = c.optional("sliding_window", 4096), c.integer("sliding_window_pattern", 4)
    types = layer_types(c, depth, [SLIDING if (i + 1) % every else FULL for i in range(depth)])
    # read by nobody; `use_parallel_embedding` is about how the table was spread over devices in training
    c.ignore("order_of_interleaved_layers", "rotary_pct", "position_embedding_type", "layer_switch")
    c.ignore("use_parallel_embedding")
    c.refuse_unless("use_gated_activation", True, [True], "the feed-forward layer is gated")
    c.refuse_unless("use_embedding_sharing", True, [True], "see tie_word_embeddings")
    c.refuse_unless("use_parallel_block", True, [True], "attention and mlp stand side by side")
    c.refuse_unless("use_qk_norm", False, [False], "queries and keys have no norm")
    mlp = gated_mlp(c.integer("intermediate_size", 22528), c.choice("hidden_act", "silu", ACTIVATIONS))

    def kind(sliding: bool) -> Layer:
        local = sliding and window is not None
        attn = attention(
            h,
            dim,
            rope=positions if local else None,
            window=window if local else None,
            bias=bias,
            out_bias=bias,
            dropout=drop,
        )
        side_by_side = ast.Parallel((ast.Name("attn"), ast.Name("mlp")))
        parts = {"attn": attn, "mlp": mlp}
        return layer(
            "Local" if sliding else "Global", pipe("norm", side_by_side), parts=parts, norms=("input_layernorm",)
        )

    factor = c.number("logit_scale", 0.0625)
    return decoder(
        "cohere2",
        dim,
        vocab,
        [kind(t == SLIDING) for t in types],
        call("layernorm", eps=c.number("layer_norm_eps", 1e-5), bias=False),
        tied=c.flag("tie_word_embeddings", True),
        head={"scale": unless(factor, 1.0)},
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
        "sliding_window": turned[0].window if turned else 4096,
        "layer_types": types_of(m),
        "layer_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "logit_scale": m.lm_head.scale,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
    }
