"""granitemoehybrid: Mamba-2 and attention layers, each with experts beside an mlp, and granite's factors."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, over, pipe, scale, unless
from hybridc.frontend.hf.config import ACTIVATIONS, MAX_NUMBER_OF, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, aux_of, divisor_of, ends, heads_of, rope_of
from hybridc.frontend.hf.mambas import LAYER_TYPES, SIDE_FIELDS, side_mixer, side_mixer_of
from hybridc.frontend.hf.parts import Part, attention, aux_loss, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap, same


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 32000, 32)
    eps, bias, h = c.number("rms_norm_eps", 1e-6), c.flag("attention_bias", False), heads(c, dim)
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    types = _types(c, depth)
    if act != "silu" and "linear_attention" in types:
        c.refuse("hidden_act", c.values["hidden_act"], "Mamba layers have silu: use that")
    c.ignore("init_method")
    c.refuse_unless("normalization_function", "rmsnorm", ["rmsnorm"], "this family has RMS norms")
    turned = rope(c, theta=10000.0, max_positions=2048)
    positions = turned if c.take("position_embedding_type", None, str) == "rope" else None
    parts = {
        "attn": attention(
            h,
            dim,
            rope=positions,
            scale=unless(c.positive("attention_multiplier", 1.0), h.dim**-0.5),
            bias=bias,
            out_bias=bias,
            dropout=dropout(c),
        ),
        "mlp": _shared(c, act),
    }
    c.ignore(*SIDE_FIELDS)
    if "linear_attention" in types:
        parts["ssm"] = side_mixer(c, dim, eps)
    experts, behind = _experts(c, act), scale(c.number("residual_multiplier", 1.0))
    feed: ast.Expr = ast.Name("mlp")
    if experts is not None:
        parts["moe"] = experts
        feed = ast.Parallel((ast.Name("moe"), ast.Name("mlp")))

    def kind(mixer: str) -> Layer:
        return layer(
            {"attn": "Attention", "ssm": "Mamba"}[mixer],
            pipe("norm", mixer, behind),
            pipe("norm", feed, behind),
            parts={k: part for k, part in parts.items() if k == mixer or k in ("moe", "mlp")},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "granitemoehybrid",
        dim,
        vocab,
        [kind("ssm" if t == "linear_attention" else "attn") for t in types],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        embed={"scale": unless(c.number("embedding_multiplier", 1.0), 1.0)},
        head={"scale": over(c.positive("logits_scaling", 1.0))},
        init=initial(c),
    )


def _types(c: Config, depth: int) -> list[str]:
    name = "layers_block_type" if "layers_block_type" in c.values else "layer_types"
    types = c.words(name, LAYER_TYPES) or ["linear_attention"] * depth
    if len(types) != depth:
        c.refuse(name, c.values[name], f"name {depth} layers, as num_hidden_layers says")
    return types


def _shared(c: Config, act: str) -> Part:
    """The mlp beside the experts, or alone."""
    made = gated_mlp(c.integer("shared_intermediate_size", 1024), act)
    names = (("gate_up.weight", "shared_mlp.input_linear.weight"), ("down.weight", "shared_mlp.output_linear.weight"))
    return Part(made.call, same(*names))


def _experts(c: Config, act: str) -> Part | None:
    """Experts, or None where the config has none; all of a layer stand in one tensor of the file."""
    count = c.take("num_local_experts", 8, int, low=0, high=MAX_NUMBER_OF)
    if not count:
        c.ignore("intermediate_size", "num_experts_per_tok", "router_aux_loss_coef", "output_router_logits")
        return None
    made = call(
        "moe",
        experts=count,
        hidden=c.integer("intermediate_size", 11008),
        top_k=c.integer("num_experts_per_tok", 2),
        act=unless(act, "silu"),
        aux_coef=aux_loss(c, 0.001),
    )
    ours = ("router.weight", "experts.gate_up", "experts.down")

    def names(*theirs: str) -> dict[str, Any]:
        return same(*((o, f"block_sparse_moe.{t}") for o, t in zip(ours, theirs, strict=True)))

    newer = names("router.weight", "experts.gate_up_proj", "experts.down_proj")
    return Part(
        made,
        names("router.layer.weight", "input_linear.weight", "output_linear.weight"),
        {k: (source,) for k, source in newer.items()},
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, ssm, mlp, experts = m.maybe("attn"), m.maybe("ssm"), m.op("mlp"), m.maybe("moe")
    fields: dict[str, Any] = {**ends(m), "rms_norm_eps": m.op("norm").eps, "num_local_experts": 0}
    if attn is not None:
        fields |= {**heads_of(attn), **(rope_of(attn.rope) if attn.rope else {})}
        fields |= {
            "attention_bias": attn.bias,
            "attention_dropout": attn.dropout,
            "attention_multiplier": attn.scale,
            "position_embedding_type": "rope" if attn.rope else "nope",
        }
    if ssm is not None:
        fields |= side_mixer_of(ssm, m.embedding.dim)
    else:
        fields["mamba_n_heads"] = 1  # the library checks its default against the width, even where no layer has them
    if experts is not None:
        fields |= {
            **aux_of(experts),
            "num_local_experts": experts.experts,
            "num_experts_per_tok": experts.top_k,
            "intermediate_size": experts.hidden,
        }
    return {
        **fields,
        "layer_types": ["full_attention" if flag else "linear_attention" for flag in m.layers_with("attn")],
        "shared_intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
        "residual_multiplier": m.scale_behind("attn" if attn else "ssm"),
        "embedding_multiplier": m.embedding.scale,
        "logits_scaling": divisor_of(m.lm_head.scale),
    }
