"""qwen2_moe: qwen2 with experts, one of which every token visits behind a gate."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, SLIDING, dropout, initial, layer_types, sizes, sparse_layers
from hybridc.frontend.hf.inverse import Found, activation_of, aux_of, ends, heads_of, rope_of, windows_of
from hybridc.frontend.hf.parts import attention, aux_loss, gated_mlp, heads, moe
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2048, 151936, 24)
    eps = c.number("rms_norm_eps", 1e-6)
    h, bias = heads(c, dim, query=16, key_value=16), c.flag("qkv_bias", True)
    positions, drop = rope(c, theta=10000.0, max_positions=32768), dropout(c)
    types, window = _windows(c, depth)

    sparse = sparse_layers(c, depth)
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    mlp = gated_mlp(c.integer("intermediate_size", 5632), act)
    experts = moe(
        c.integer("num_experts", c.integer("num_local_experts", 60)),
        c.integer("moe_intermediate_size", 1408),
        c.integer("num_experts_per_tok", 4),
        act=act,
        renormalize=unless(c.flag("norm_topk_prob", False), True),
        shared=c.integer("shared_expert_intermediate_size", 5632),
        shared_gate="shared_expert_gate.weight",
        aux_coef=aux_loss(c, 0.001),
    )

    def kind(sliding: bool, is_sparse: bool) -> Layer:
        attn = attention(
            h,
            dim,
            rope=positions,
            window=window if sliding else None,
            bias=bias,
            dropout=drop,
        )
        feed = "moe" if is_sparse else "mlp"
        return layer(
            ("Local" if sliding else "") + ("Sparse" if is_sparse else "Dense"),
            pipe("norm", "attn"),
            pipe("norm", feed),
            parts={"attn": attn, feed: experts if is_sparse else mlp},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "qwen2_moe",
        dim,
        vocab,
        [kind(t == SLIDING, s) for t, s in zip(types, sparse, strict=True)],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )


def _windows(c: Config, depth: int) -> tuple[list[str], int | None]:
    """Which layers have the window: every other one of the first max_window_layers."""
    used = c.flag("use_sliding_window", False)
    window = c.take("sliding_window", 4096, int, low=1 if used else 0)  # saved as 0 where there is none
    first = c.take("max_window_layers", 28, int, low=0)
    default = [SLIDING if used and (i + 1) % 2 and i < first else FULL for i in range(depth)]
    types = layer_types(c, depth, default)
    if SLIDING in types and not used:
        c.refuse("use_sliding_window", False, "layer_types names windowed layers, which need it to be true")
    return types, window if used else None


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp, experts = m.op("attn"), m.maybe("mlp"), m.op("moe")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        **aux_of(experts),
        **windows_of(m),
        "rms_norm_eps": m.op("norm").eps,
        "qkv_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden if mlp else 5632,
        "hidden_act": activation_of(experts),
        "mlp_only_layers": [i for i, dense in enumerate(m.layers_with("mlp")) if dense],
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "norm_topk_prob": experts.renormalize,
        "moe_intermediate_size": experts.hidden,
        "shared_expert_intermediate_size": experts.shared,
    }
