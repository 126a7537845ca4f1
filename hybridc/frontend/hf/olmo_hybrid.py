"""olmo_hybrid: gated delta nets behind norms in most layers, olmo2's attention in the others (OLMo Hybrid, 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import Part, attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Source, WeightMap, joined, same

LINEAR = "linear_attention"


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 3840, 100352, 32)
    eps, act = c.number("rms_norm_eps", 1e-6), c.choice("hidden_act", "silu", ACTIVATIONS)
    default = [FULL if i % 4 == 3 else LINEAR for i in range(depth)]
    if FULL not in default:
        default[-1] = FULL
    types = layer_types(c, depth, default, (FULL, LINEAR))
    h, bias = heads(c, dim, query=30), c.flag("attention_bias", False)
    attn = attention(
        h,
        dim,
        rope=_positions(c),
        bias=bias,
        out_bias=bias,
        qk_norm=call("rmsnorm", eps=eps),
        qk_norm_over="all",
        dropout=dropout(c),
    )
    mlp, mixer = gated_mlp(c.integer("intermediate_size", 11008), act), _delta_net(c, dim, h.query, act)

    def kind(name: str) -> Layer:
        if name == LINEAR:
            norms = ("attention_layer_norm", "feedforward_layer_norm")
            parts = {"delta": mixer, "mlp": mlp}
            return layer("Delta", pipe("norm", "delta"), pipe("norm", "mlp"), parts=parts, norms=norms)
        # the library writes the norm behind the attention under the other kind's name
        norms = ("feedforward_layer_norm", "post_feedforward_layernorm")
        parts = {"attn": attn, "mlp": mlp}
        return layer("Attn", pipe("attn", "norm"), pipe("mlp", "norm"), parts=parts, norms=norms)

    spec, weights = decoder(
        "olmo_hybrid",
        dim,
        vocab,
        [kind(t) for t in types],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )
    return spec, WeightMap(weights.sources, _others(weights.sources, types), weights.ignored)


def _others(sources: Mapping[str, Source], types: list[str]) -> dict[str, tuple[Source, ...]]:
    """Names that transformers' own modules have; and its files cut the convolution into thirds, whatever is in them."""
    linear = {"norm.weight": "input_layernorm.weight", "norm_2.weight": "post_attention_layernorm.weight"}
    full = {"norm.weight": "post_attention_layernorm.weight", "norm_2.weight": "post_feedforward_layernorm.weight"}
    out: dict[str, tuple[Source, ...]] = {}
    for i, name in enumerate(types):
        for ours, theirs in (linear if name == LINEAR else full).items():
            out[f"layers.{i}.{ours}"] = (Source((f"model.layers.{i}.{theirs}",)),)
        if name == LINEAR:
            source = sources[f"layers.{i}.delta.conv.weight"]
            rows = sum(source.rows)
            third = -(-rows // 3)  # as torch.chunk does, which leaves the last one what remains
            out[f"layers.{i}.delta.conv.weight"] = (replace(source, rows=(third, third, rows - 2 * third)),)
    return out


def _positions(c: Config) -> ast.Call | None:
    """The rope; a config whose rope has no base has none, as those of the published models."""
    given = c.values.get("rope_parameters")
    inner = given if isinstance(given, dict) else {}
    where = inner if "rope_theta" in inner else c.values
    if "rope_theta" in where and where["rope_theta"] is None:
        c.ignore("rope_parameters", "rope_theta", "max_position_embeddings")
        return None
    return rope(c, theta=10000.0, max_positions=65536)


def _delta_net(c: Config, dim: int, queries: int, act: str) -> Part:
    keys, values = c.integer("linear_num_key_heads", queries), c.integer("linear_num_value_heads", queries)
    key_dim = c.integer("linear_key_head_dim", max(1, int(0.75 * dim / keys)))
    value_dim = c.integer("linear_value_head_dim", 2 * key_dim)
    c.ignore("linear_a_log_min", "linear_a_log_max")  # the range of the decays at the start, A from 0 to 16
    made = call(
        "gated_delta_net",
        heads=values,
        key_heads=unless(keys, values),
        key_dim=unless(key_dim, 128),
        value_dim=unless(value_dim, key_dim),
        conv=unless(c.integer("linear_conv_kernel_dim", 4), 4),
        act=unless(act, "silu"),
        neg_eigval=unless(c.flag("linear_allow_neg_eigval", True), False),
        norm=call("gated_rmsnorm", gate_first=False),
        dt_min=unless(c.number("linear_dt_min", 0.001), 0.001),
        dt_max=unless(c.number("linear_dt_max", 0.1), 0.1),
        dt_floor=unless(c.number("linear_dt_init_floor", 1e-4), 1e-4),
    )
    at, k, v = "linear_attn.", keys * key_dim, values * value_dim
    rows = {"q_proj": k, "k_proj": k, "v_proj": v, "g_proj": v, "b_proj": values, "a_proj": values}
    weights = {
        **joined("in_proj", [(at + n, r) for n, r in rows.items()]),
        "conv.weight": Source(tuple(f"{at}{n}_conv1d.weight" for n in "qkv"), (k, k, v), squeeze=1),
        **same(*((n, at + n) for n in ("A_log", "dt_bias"))),
        **same(("norm.weight", f"{at}o_norm.weight"), ("out_proj.weight", f"{at}o_proj.weight")),
    }
    return Part(made, weights)


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, delta, mlp = m.op("attn"), m.op("delta"), m.op("mlp")
    rotary = rope_of(attn.rope) if attn.rope is not None else {"rope_parameters": {"rope_theta": None}}
    return {
        **ends(m),
        **heads_of(attn),
        **rotary,
        "rms_norm_eps": m.op("norm").eps,
        "layer_types": [FULL if a else LINEAR for a in m.layers_with("attn")],
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
        "linear_num_value_heads": delta.heads,
        "linear_num_key_heads": delta.key_heads,
        "linear_key_head_dim": delta.key_dim,
        "linear_value_head_dim": delta.value_dim,
        "linear_conv_kernel_dim": delta.conv,
        "linear_allow_neg_eigval": delta.neg_eigval,
        "linear_dt_min": delta.dt_min,
        "linear_dt_max": delta.dt_max,
        "linear_dt_init_floor": delta.dt_floor,
    }
