"""bailing_hybrid: kimi_linear with gates of full rank, and latent attention with positions and gated heads (Ling 3)."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Names, decoder
from hybridc.frontend.hf.fields import FULL, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, kda_of, mla_of, sigmoid_moe_of
from hybridc.frontend.hf.kimi_linear import EXPERTS, LINEAR, NAMES, layers
from hybridc.frontend.hf.parts import gated_mlp, kda, mla, sigmoid_moe, yarn_scale
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    c.rename({**NAMES, **EXPERTS, "num_mtp_layers": "num_nextn_predict_layers"})
    dim, vocab, depth = sizes(c, 2560, 157184, 42)
    eps, act = c.number("rms_norm_eps", 1e-6), c.choice("hidden_act", "silu", ACTIVATIONS)
    every = c.integer("layer_group_size", 6)
    types = layer_types(c, depth, [LINEAR if (i + 1) % every else FULL for i in range(depth)], (FULL, LINEAR))
    n_heads = c.integer("num_attention_heads", 32)
    c.refuse_unless("num_key_value_heads", n_heads, [n_heads], "latents make keys and values for every head")
    attn = mla(
        n_heads,
        c.integer("kv_lora_rank", 512),
        c.integer("qk_nope_head_dim", 128),
        c.integer("qk_rope_head_dim", 64),
        c.integer("v_head_dim", 128),
        q_rank=c.integer("q_lora_rank", None),
        rope=rope(c, theta=6e6, max_positions=262144, interleaved=True),
        norm=call("rmsnorm", eps=1e-6),
        scale_factor=yarn_scale(c),
        bias=c.flag("attention_bias", False),
        at="attention.",
        out="dense",
        gate="g_proj",
        dropout=dropout(c),
    )
    bound = c.number("kda_lower_bound", -5.0)
    mixer = kda(
        c.integer("linear_num_heads", n_heads),
        c.integer("linear_head_dim", c.integer("head_dim", 128)),
        rank=0,
        conv=c.integer("linear_conv_kernel_dim", c.integer("short_conv_kernel_size", 4)),
        act=act,
        norm_eps=eps,
        lower_bound=bound if c.flag("kda_safe_gate", True) else None,
        at="attention.",
        out="dense",
    )
    # follow from others; in training at home; tensors that the library has twice and fills from the file
    c.ignore("head_dim", "qk_head_dim", "model_max_length", "output_router_logits", "tie_word_embeddings")
    c.ignore("num_nextn_predict_layers", "mtp_loss_scaling_factor")
    hidden = c.integer("moe_intermediate_size", 768)
    experts = sigmoid_moe(
        c,
        c.integer("num_experts", 512),
        hidden,
        shared=hidden * c.integer("num_shared_experts", 1),
        groups=(8, 4),
        scaling=2.5,
        act=act,
        correction_bias="gate.expert_bias",
        names=NAMES,
    )
    mlp = gated_mlp(c.integer("intermediate_size", 6144), act)
    return decoder(
        "bailing_hybrid",
        dim,
        vocab,
        layers(c, types, attn, mixer, mlp, experts, dense=2),
        call("rmsnorm", eps=eps),
        names=Names(embed="model.word_embeddings.weight"),
        init=initial(c),
        ignored=(f"model.layers.{depth}.*",),  # multi-token prediction, which the library does not load either
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mixer, mlp, experts = m.maybe("attn"), m.maybe("kda"), m.maybe("mlp"), m.maybe("moe")
    theirs = {**NAMES, **EXPERTS}
    fields: dict[str, Any] = {
        **ends(m),
        **{theirs.get(k, k): v for k, v in sigmoid_moe_of(experts).items()},
        "rms_norm_eps": m.op("norm").eps,
        "hidden_act": activation_of(mlp or experts),
        "intermediate_size": mlp.hidden if mlp else 6144,
        "layer_types": [FULL if a else LINEAR for a in m.layers_with("attn")],
        "mlp_layer_types": ["dense" if d else "sparse" for d in m.layers_with("mlp")],
    }
    if attn:
        fields |= {**mla_of(attn), "attention_bias": attn.bias, "attention_dropout": attn.dropout}
        del fields["rope_interleave"]
    if mixer:
        fields |= {**kda_of(mixer), "kda_safe_gate": mixer.lower_bound is not None}
        fields |= {} if mixer.lower_bound is None else {"kda_lower_bound": mixer.lower_bound}
    return fields
