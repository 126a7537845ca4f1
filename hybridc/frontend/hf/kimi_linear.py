"""kimi_linear: Kimi delta attention in most layers, latent attention without positions in the others, experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, kda_of, mla_of, sigmoid_moe_of
from hybridc.frontend.hf.parts import Part, gated_mlp, kda, mla, sigmoid_moe
from hybridc.frontend.hf.weightmap import WeightMap

LINEAR = "linear_attention"
NAMES = {
    "n_group": "num_expert_group",
    "num_experts_per_tok": "num_experts_per_token",
    "norm_topk_prob": "moe_renormalize",
}
"""Fields of DeepSeek-V3 by the names that they have here."""
EXPERTS = {
    "n_routed_experts": "num_experts",
    "num_local_experts": "num_experts",
    "n_shared_experts": "num_shared_experts",
}
"""More of them, each of which transformers reads as the other."""


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    c.rename({**NAMES, **EXPERTS})
    dim, vocab, depth = sizes(c, 2304, 163840, 27)
    eps, act = c.number("rms_norm_eps", 1e-5), c.choice("hidden_act", "silu", ACTIVATIONS)
    nested = Config(c.take("linear_attn_config", {}, dict), c.family, within="linear_attn_config")
    nested.sink = c.sink
    types = layer_types(c, depth, _types(nested, depth), (FULL, LINEAR))
    attn_heads = c.integer("num_attention_heads", 32)
    c.refuse_unless("num_key_value_heads", attn_heads, [attn_heads], "latents make keys and values for every head")
    attn = mla(
        attn_heads,
        c.integer("kv_lora_rank", 512),
        c.integer("qk_nope_head_dim", 128),
        c.integer("qk_rope_head_dim", 64),
        c.integer("v_head_dim", 128),
        q_rank=c.integer("q_lora_rank", None),
        rope=None,
        norm=call("rmsnorm", eps=1e-6),
        bias=c.flag("attention_bias", False),
        dropout=dropout(c),
    )
    head_dim = nested.integer("head_dim", c.integer("linear_head_dim", 128))
    mixer = kda(
        nested.integer("num_heads", c.integer("linear_num_heads", 32)),
        head_dim,
        rank=head_dim,
        conv=nested.integer("short_conv_kernel_size", c.integer("linear_conv_kernel_dim", 4)),
        act=act,
        norm_eps=eps,
    )
    nested.report_unknown()
    c.ignore("tie_word_embeddings")  # the library has two tensors and fills each from the file, whatever this says
    # follow from others, or are the checkpoint's own code's; positions are none, so their settings change nothing
    c.ignore("head_dim", "qk_head_dim", "model_max_length", "rope_theta", "rope_scaling", "rope_parameters")
    c.ignore("num_nextn_predict_layers", "output_router_logits")
    c.refuse_unless("mla_use_nope", True, [True], "latent attention has no positions")
    c.refuse_unless("moe_router_activation_func", "sigmoid", ["sigmoid"], "experts are scored by sigmoid")
    c.refuse_unless("use_grouped_topk", True, [True], "experts are chosen by groups")
    c.refuse_unless("moe_layer_freq", 1, [1], "see mlp_layer_types")
    hidden = c.integer("moe_intermediate_size", 1024)
    experts = sigmoid_moe(
        c,
        c.integer("num_experts", 256),
        hidden,
        shared=hidden * c.integer("num_shared_experts", 1),
        groups=(1, 1),
        scaling=2.446,
        act=act,
        names=NAMES,
        at="block_sparse_moe.",
        fused_at="mlp.",
        each=("w1", "w3"),
        each_down="w2",
    )
    mlp = gated_mlp(c.integer("intermediate_size", 9216), act, at="block_sparse_moe.")
    return decoder(
        "kimi_linear",
        dim,
        vocab,
        layers(c, types, attn, mixer, mlp, experts, dense=1),
        call("rmsnorm", eps=eps),
        init=initial(c),
    )


def layers(
    c: Config, types: Sequence[str], attn: Part, mixer: Part, mlp: Part, experts: Part, *, dense: int
) -> list[Layer]:
    """Layers of the given types, each with a mixer and then experts, or an mlp in the first of them, as
    `mlp_layer_types` or `first_k_dense_replace` says; `dense` is the family's default of the latter."""
    first = c.take("first_k_dense_replace", dense, int, low=0)
    usual = ["dense" if i < first else "sparse" for i in range(len(types))]
    feeds = layer_types(c, len(types), usual, ("dense", "sparse"), "mlp_layer_types")

    def kind(name: str, feed: str) -> Layer:
        mine = {"attn": attn} if name == FULL else {"kda": mixer}
        fed = {"mlp": mlp} if feed == "dense" else {"moe": experts}
        return layer(
            ("Attn" if name == FULL else "Kda") + feed.capitalize(),
            pipe("norm", *mine),
            pipe("norm", *fed),
            parts={**mine, **fed},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return [kind(t, f) for t, f in zip(types, feeds, strict=True)]


def _types(nested: Config, depth: int) -> list[str]:
    """The kind of each layer; the published config counts layers from 1."""
    full, linear = (nested.take(n, None, list) for n in ("full_attn_layers", "kda_layers"))
    if full is None or linear is None:
        return [FULL if i and i % 4 == 0 else LINEAR for i in range(depth)]
    if sorted([*full, *linear], key=str) != sorted(range(1, depth + 1), key=str):
        nested.refuse("full_attn_layers", full, f"it and kda_layers name each of the layers from 1 to {depth} once")
    return [FULL if i + 1 in full else LINEAR for i in range(depth)]


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mixer, mlp, experts = m.maybe("attn"), m.maybe("kda"), m.maybe("mlp"), m.maybe("moe")
    theirs = {**NAMES, **EXPERTS}
    return {
        **ends(m),
        **({**mla_of(attn), "attention_bias": attn.bias, "attention_dropout": attn.dropout} if attn else {}),
        **(kda_of(mixer) if mixer else {}),
        **{theirs.get(k, k): v for k, v in sigmoid_moe_of(experts).items()},
        "rms_norm_eps": m.op("norm").eps,
        "hidden_act": activation_of(mlp or experts),
        "intermediate_size": mlp.hidden if mlp else 9216,
        "layer_types": [FULL if a else LINEAR for a in m.layers_with("attn")],
        "mlp_layer_types": ["dense" if d else "sparse" for d in m.layers_with("mlp")],
    }
