"""glm4_moe: experts as in deepseek_v3 behind plain attention that rotates a part of each head."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of, sigmoid_moe_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads, sigmoid_moe
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 151552, 46)
    eps = c.number("rms_norm_eps", 1e-5)
    bias = c.flag("attention_bias", False)
    qk_norm = call("rmsnorm", eps=eps) if c.flag("use_qk_norm", False) else None
    attn = attention(
        heads(c, dim, query=96, key_value=8),
        dim,
        rope=rope(c, theta=10000.0, max_positions=131072, partial=0.5, may_be_partial=True),
        bias=bias,
        qk_norm=qk_norm,
        dropout=dropout(c),
    )
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    mlp = gated_mlp(c.integer("intermediate_size", 10944), act)
    hidden = c.integer("moe_intermediate_size", 1408)
    experts = sigmoid_moe(
        c,
        c.integer("n_routed_experts", c.integer("num_local_experts", 128)),
        hidden,
        shared=hidden * c.integer("n_shared_experts", 1),
        act=act,
        groups=(1, 1),
        scaling=1.0,
    )
    c.ignore("num_nextn_predict_layers", "num_mtp_layers", "output_router_logits", "router_aux_loss_coef")
    c.ignore("ep_size", "seq_aux", "aux_loss_alpha", "moe_layer_freq")  # of published configs, for training at home
    c.refuse_unless("scoring_func", "sigmoid", ["sigmoid"], "experts are scored by sigmoid")
    c.refuse_unless("topk_method", "noaux_tc", ["noaux_tc"], "experts are chosen with a correction bias")
    dense = min(depth, c.take("first_k_dense_replace", 1, int, low=0))

    def kind(is_dense: bool) -> Layer:
        feed = "mlp" if is_dense else "moe"
        return layer(
            "Dense" if is_dense else "Sparse",
            pipe("norm", "attn"),
            pipe("norm", feed),
            parts={"attn": attn, feed: mlp if is_dense else experts},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "glm4_moe",
        dim,
        vocab,
        [kind(i < dense) for i in range(depth)],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
        ignored=(f"model.layers.{depth}.*",),  # multi-token prediction, which the library does not load either
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp, experts = m.op("attn"), m.maybe("mlp"), m.maybe("moe")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope, partial=True),
        **sigmoid_moe_of(experts),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "use_qk_norm": attn.qk_norm is not None,
        "intermediate_size": mlp.hidden if mlp else 10944,
        "hidden_act": activation_of(mlp or experts),
        "first_k_dense_replace": sum(m.layers_with("mlp")),
    }
