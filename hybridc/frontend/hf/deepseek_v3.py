"""deepseek_v3: latent attention, and experts routed by sigmoid scores of groups behind the first dense layers."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, mla_of, sigmoid_moe_of
from hybridc.frontend.hf.parts import gated_mlp, mla, sigmoid_moe, yarn_scale
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 7168, 129280, 61)
    eps = c.number("rms_norm_eps", 1e-6)
    n_heads = c.integer("num_attention_heads", 128)
    c.refuse_unless("num_key_value_heads", n_heads, [n_heads, 128], "latents make keys and values for every head")
    positions = rope(c, theta=10000.0, max_positions=4096, interleaved=c.flag("rope_interleave", True))
    attn = mla(
        n_heads,
        c.integer("kv_lora_rank", 512),
        c.integer("qk_nope_head_dim", 128),
        c.integer("qk_rope_head_dim", 64),
        c.integer("v_head_dim", 128),
        q_rank=c.optional("q_lora_rank", 1536),
        rope=positions,
        norm=call("rmsnorm", eps=1e-6),
        scale_factor=yarn_scale(c),
        bias=c.flag("attention_bias", False),
        dropout=dropout(c),
    )
    c.ignore("head_dim", "qk_head_dim")  # follow from the others
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    mlp = gated_mlp(c.integer("intermediate_size", 18432), act)
    hidden = c.integer("moe_intermediate_size", 2048)
    experts = sigmoid_moe(
        c,
        c.integer("n_routed_experts", c.integer("num_local_experts", 256)),
        hidden,
        shared=hidden * c.integer("n_shared_experts", 1),
        act=act,
        groups=(8, 4),
        scaling=2.5,
    )
    c.ignore("num_nextn_predict_layers", "num_mtp_layers", "output_router_logits", "router_aux_loss_coef")
    c.ignore("ep_size", "seq_aux", "aux_loss_alpha", "moe_layer_freq")  # of published configs, for training at home
    c.refuse_unless("scoring_func", "sigmoid", ["sigmoid"], "experts are scored by sigmoid")
    c.refuse_unless("topk_method", "noaux_tc", ["noaux_tc"], "experts are chosen with a correction bias")
    dense = min(depth, c.take("first_k_dense_replace", 3, int, low=0))

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
        "deepseek_v3",
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
        **mla_of(attn),
        **sigmoid_moe_of(experts),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden if mlp else 18432,
        "hidden_act": activation_of(mlp or experts),
        "first_k_dense_replace": sum(m.layers_with("mlp")),
    }
