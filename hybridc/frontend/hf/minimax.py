"""minimax: lightning attention in most layers, mixtral's attention in the others, experts in all (MiniMax-01, 2025)."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, expr, pipe, scale, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, aux_of, ends, misfit, rope_of
from hybridc.frontend.hf.parts import Heads, Part, attention, aux_loss, heads, moe
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Grouped, Source, WeightMap, same

LINEAR = "linear_attention"
_BUFFERS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Tensors of linear layers that follow from the config."""


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 32000, 32)
    c.refuse_unless("router_jitter_noise", 0.0, (0, 0.0), "noise on the router's input in training")
    # in published configs: what the family always does, and a shared expert that no model has
    c.refuse_unless("postnorm", True, [True], "the residual is the normed stream")
    c.refuse_unless("shared_intermediate_size", 0, [0], "there is no shared expert")
    c.ignore("shared_moe_mode")
    h, act = heads(c, dim, key_value=8), c.choice("hidden_act", "silu", ACTIVATIONS)
    types = layer_types(c, depth, [FULL if (i + 1) % 2 else LINEAR for i in range(depth)], (FULL, LINEAR))
    attn = attention(
        h,
        dim,
        rope=rope(c, theta=1e6, max_positions=4096 * 32, partial=_rotating(c, h.dim)),
        window=c.integer("sliding_window", None),
        dropout=dropout(c),
    )
    linear = _linear(c, h, act, depth)
    experts = moe(
        c.integer("num_local_experts", 8),
        c.integer("intermediate_size", 14336),
        c.integer("num_experts_per_tok", 2),
        at="block_sparse_moe.",
        each=("w1", "w3"),
        each_down="w2",
        fused_at="mlp.",
        act=act,
        aux_coef=aux_loss(c, 0.001),
    )
    factors = {
        FULL: (c.number("full_attn_alpha_factor", 1.0), c.number("full_attn_beta_factor", 1.0)),
        LINEAR: (c.number("linear_attn_alpha_factor", 1.0), c.number("linear_attn_beta_factor", 1.0)),
    }
    feed = (c.number("mlp_alpha_factor", 1.0), c.number("mlp_beta_factor", 1.0))

    def kind(name: str) -> Layer:
        mine = {"attn": attn} if name == FULL else {"lightning_attention": linear}
        return layer(
            "Full" if name == FULL else "Linear",
            ast.Statement("x", "=", ast.Name("norm")),
            _residual(factors[name], *mine),
            ast.Statement("x", "=", ast.Name("norm")),
            _residual(feed, "moe"),
            parts={**mine, "moe": experts},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    buffers = [f"model.layers.{i}.self_attn.{n}" for i, t in enumerate(types) if t == LINEAR for n in _BUFFERS]
    return decoder(
        "minimax",
        dim,
        vocab,
        [kind(t) for t in types],
        call("rmsnorm", eps=c.number("rms_norm_eps", 1e-5)),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
        ignored=buffers,
    )


def _rotating(c: Config, head_dim: int) -> float:
    """The part of each head that rotates: the first `rotary_dim` channels, as in the module that MiniMax published with
    the weights. transformers (5.24) takes no notice of the field and rotates whole heads."""
    channels = c.integer("rotary_dim", head_dim)
    if channels != head_dim and (channels > head_dim or channels % 2):
        c.refuse("rotary_dim", channels, f"give an even number of the {head_dim} channels of a head")
        return 1.0
    return float(channels / head_dim)


def _residual(factors: tuple[float, float], part: str) -> ast.Statement:
    """The normed stream times the first factor, plus the sublayer's result times the second."""
    kept, added = factors
    value = pipe(part, scale(added))
    if kept == 1.0:
        return ast.Statement("x", "+=", value)
    return ast.Statement("x", "=", ast.Binary("+", scale(kept) or ast.Name("x"), value))


def _linear(c: Config, h: Heads, act: str, depth: int) -> Part:
    """A linear layer: later ones decay less. The public projection has q, k and v rows of each head in turn."""
    fading = ast.Binary("-", expr(1), ast.Binary("/", ast.Name("layer"), ast.Binary("+", expr(depth - 1), expr(1e-5))))
    made = call(
        "lightning_attention",
        heads=h.query,
        head_dim=h.dim,
        slope_scale=ast.Binary("+", fading, expr(1e-5)),
        act=unless(act, "silu"),
        norm=call("rmsnorm", eps=1e-6),
        chunk=unless(c.integer("block_size", 256), 256),
    )
    inner = h.query * h.dim
    names = ("self_attn.qkv_proj.weight", "self_attn.output_gate.weight")
    turns = Grouped(h.query, (h.dim, h.dim, h.dim))
    weights = {"in_proj.weight": Source(names, (3 * inner, inner), grouped=(turns, None))}
    pairs = (("norm.weight", "self_attn.norm.weight"), ("out_proj.weight", "self_attn.out_proj.weight"))
    return Part(made, {**weights, **same(*pairs)})


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, linear, experts = m.maybe("attn"), m.maybe("lightning_attention"), m.op("moe")
    mixer = attn or linear
    if mixer is None:
        raise misfit("no layer has attention")
    fields: dict[str, Any] = {
        **ends(m),
        **aux_of(experts),
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": attn.kv_heads if attn else mixer.heads,
        "head_dim": mixer.head_dim,
        "hidden_act": activation_of(experts),
        "layer_types": [FULL if a else LINEAR for a in m.layers_with("attn")],
        "num_local_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "intermediate_size": experts.hidden,
        "rms_norm_eps": m.op("norm").eps,
        "mlp_alpha_factor": m.kept_beside("moe"),
        "mlp_beta_factor": m.scale_behind("moe"),
    }
    if attn:
        fields |= {**rope_of(attn.rope), "sliding_window": attn.window, "attention_dropout": attn.dropout}
        if attn.rope.partial != 1.0:
            fields["rotary_dim"] = round(attn.rope.partial * attn.head_dim)
        fields["full_attn_alpha_factor"] = m.kept_beside("attn")
        fields["full_attn_beta_factor"] = m.scale_behind("attn")
    if linear:
        fields["block_size"] = linear.chunk
        fields["linear_attn_alpha_factor"] = m.kept_beside("lightning_attention")
        fields["linear_attn_beta_factor"] = m.scale_behind("lightning_attention")
    return fields
