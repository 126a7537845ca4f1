"""qwen3_moe: qwen3 with experts in all layers but those that are named."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes, sparse_layers
from hybridc.frontend.hf.inverse import Found, activation_of, aux_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import attention, aux_loss, gated_mlp, heads, moe
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2048, 151936, 24)
    eps = c.number("rms_norm_eps", 1e-6)
    h, bias = heads(c, dim, query=32, key_value=4), c.flag("attention_bias", False)
    positions, drop = rope(c, theta=10000.0, max_positions=32768), dropout(c)
    window = c.optional("sliding_window", 4096) if c.flag("use_sliding_window", False) else None
    c.ignore("sliding_window", "max_window_layers")  # without use_sliding_window, or read by nobody
    sparse = sparse_layers(c, depth)
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    mlp = gated_mlp(c.integer("intermediate_size", 6144), act)
    experts = moe(
        c.integer("num_experts", c.integer("num_local_experts", 128)),
        c.integer("moe_intermediate_size", 768),
        c.integer("num_experts_per_tok", 8),
        act=act,
        renormalize=unless(c.flag("norm_topk_prob", False), True),
        aux_coef=aux_loss(c, 0.001),
    )

    def kind(is_sparse: bool) -> Layer:
        attn = attention(
            h,
            dim,
            rope=positions,
            window=window,
            bias=bias,
            out_bias=bias,
            qk_norm=call("rmsnorm", eps=eps),
            dropout=drop,
        )
        feed = "moe" if is_sparse else "mlp"
        return layer(
            "Sparse" if is_sparse else "Dense",
            pipe("norm", "attn"),
            pipe("norm", feed),
            parts={"attn": attn, feed: experts if is_sparse else mlp},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "qwen3_moe",
        dim,
        vocab,
        [kind(s) for s in sparse],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp, experts = m.op("attn"), m.maybe("mlp"), m.op("moe")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        **aux_of(experts),
        "use_sliding_window": attn.window is not None,
        "sliding_window": attn.window,
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden if mlp else 6144,
        "hidden_act": activation_of(experts),
        "mlp_only_layers": [i for i, dense in enumerate(m.layers_with("mlp")) if dense],
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "norm_topk_prob": experts.renormalize,
        "moe_intermediate_size": experts.hidden,
    }
