"""lfm2_moe: lfm2 with experts, chosen by biased sigmoid scores, behind the first dense layers."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, ends
from hybridc.frontend.hf.lfm2 import CONV, NAMES, attention_part, conv_part, mixers_of
from hybridc.frontend.hf.parts import gated_mlp, moe
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2048, 65536, 32)
    eps = c.number("norm_eps", 1e-5)
    types = layer_types(c, depth, [FULL] * depth, (FULL, CONV))
    if "layer_types" not in c.values:
        c.refuse("layer_types", None, f"say for each layer whether it is {FULL} or {CONV}")
    c.ignore("output_router_logits", "router_aux_loss_coef")  # the library adds no loss of the router
    mlp = gated_mlp(c.integer("intermediate_size", 7168), at="feed_forward.", names=("w1", "w3"), down="w2")
    normed = c.flag("norm_topk_prob", True)
    experts = moe(
        c.integer("num_experts", 32),
        c.integer("moe_intermediate_size", 1792),
        c.integer("num_experts_per_tok", 4),
        at="feed_forward.",
        each=("w1", "w3"),
        each_down="w2",
        scores="sigmoid",
        correction_bias="expert_bias" if c.flag("use_expert_bias", True) else "",
        renormalize=unless(normed, True),
        renormalize_eps=1e-6 if normed else None,
        scaling=unless(c.number("routed_scaling_factor", 1.0), 1.0),
    )
    attn, mixer = attention_part(c, dim, eps), conv_part(c)
    dense = c.take("num_dense_layers", 2, int, low=0)

    def kind(name: str, sparse: bool) -> Layer:
        mine = {"attn": attn} if name == FULL else {"conv": mixer}
        feed = {"moe": experts} if sparse else {"mlp": mlp}
        return layer(
            ("Attn" if name == FULL else "Conv") + ("Sparse" if sparse else "Dense"),
            pipe("norm", *mine),
            pipe("norm", *feed),
            parts={**mine, **feed},
            norms=("operator_norm", "ffn_norm"),
        )

    return decoder(
        "lfm2_moe",
        dim,
        vocab,
        [kind(t, i >= dense) for i, t in enumerate(types)],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_embedding", c.flag("tie_word_embeddings", True)),
        names=NAMES,
        init=initial(c),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    mlp, experts = m.maybe("mlp"), m.maybe("moe")
    fields = {
        **ends(m),
        **mixers_of(m),
        "intermediate_size": mlp.hidden if mlp else 7168,
        "num_dense_layers": sum(m.layers_with("mlp")),
    }
    if experts is None:
        return fields
    return fields | {
        "num_experts": experts.experts,
        "moe_intermediate_size": experts.hidden,
        "num_experts_per_tok": experts.top_k,
        "use_expert_bias": experts.correction_bias,
        "norm_topk_prob": experts.renormalize,
        "routed_scaling_factor": experts.scaling,
    }
