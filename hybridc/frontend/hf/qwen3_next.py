"""qwen3_next: gated delta nets in most layers, gated attention in the others, experts, norms around zero."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, dropout, initial, layer_types, sizes, sparse_layers
from hybridc.frontend.hf.inverse import Found, activation_of, aux_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import Heads, Part, attention, aux_loss, conv, gated_mlp, heads, moe, suffixes
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Grouped, Source, WeightMap, same

LINEAR = "linear_attention"


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2048, 151936, 48)
    eps, act = c.number("rms_norm_eps", 1e-6), c.choice("hidden_act", "silu", ACTIVATIONS)
    every = c.integer("full_attention_interval", 4)
    types = layer_types(c, depth, [LINEAR if (i + 1) % every else FULL for i in range(depth)], (FULL, LINEAR))
    norm = call("rmsnorm", eps=eps, zero_centered=True)
    attn, mixer = _attention(c, dim, norm), _delta_net(c, eps, act)
    sparse = sparse_layers(c, depth)
    mlp = gated_mlp(c.integer("intermediate_size", 5632), act)
    experts = moe(
        c.integer("num_experts", c.integer("num_local_experts", 512)),
        c.integer("moe_intermediate_size", 512),
        c.integer("num_experts_per_tok", 10),
        act=act,
        renormalize=unless(c.flag("norm_topk_prob", True), True),
        shared=c.integer("shared_expert_intermediate_size", 512),
        shared_gate="shared_expert_gate.weight",
        aux_coef=aux_loss(c, 0.001),
    )

    def kind(name: str, is_sparse: bool) -> Layer:
        mine = {"attn": attn} if name == FULL else {"delta": mixer}
        feed = {"moe": experts} if is_sparse else {"mlp": mlp}
        return layer(
            ("Attn" if name == FULL else "Delta") + ("" if all(sparse) else "Sparse" if is_sparse else "Dense"),
            pipe("norm", *mine),
            pipe("norm", *feed),
            parts={**mine, **feed},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "qwen3_next",
        dim,
        vocab,
        [kind(t, s) for t, s in zip(types, sparse, strict=True)],
        norm,
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
        ignored=("mtp.*",),  # multi-token prediction, which the library does not load either
    )


def _attention(c: Config, dim: int, norm: ast.Call) -> Part:
    """Attention whose query projection has query and gate rows of each head in turn."""
    h = heads(c, dim, query=16, key_value=2, head_dim=256)
    bias = c.flag("attention_bias", False)
    part = attention(
        h,
        dim,
        rope=rope(c, theta=10000.0, max_positions=32768, partial=0.25, may_be_partial=True),
        bias=bias,
        out_bias=bias,
        qk_norm=norm,
        gated=True,
        dropout=dropout(c),
    )
    return Part(part.call, {**part.weights, **_gated_rows(h, bias)})


def _gated_rows(h: Heads, bias: bool) -> dict[str, Source]:
    q, k, v = h.rows
    turns = (Grouped(h.query, (h.dim, h.dim)), None, None)
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return {f"qkv.{s}": Source(tuple(f"{n}.{s}" for n in names), (2 * q, k, v), grouped=turns) for s in suffixes(bias)}


def _delta_net(c: Config, eps: float, act: str) -> Part:
    """The delta net; its two projections have the rows of each key head in turn."""
    keys, values = c.integer("linear_num_key_heads", 16), c.integer("linear_num_value_heads", 32)
    key_dim, value_dim = c.integer("linear_key_head_dim", 128), c.integer("linear_value_head_dim", 128)
    made = call(
        "gated_delta_net",
        heads=values,
        key_heads=unless(keys, values),
        key_dim=unless(key_dim, 128),
        value_dim=unless(value_dim, key_dim),
        conv=unless(c.integer("linear_conv_kernel_dim", 4), 4),
        act=unless(act, "silu"),
        norm=call("gated_rmsnorm", eps=unless(eps, 1e-5), gate_first=False),
    )
    at, share = "linear_attn.", max(1, values // keys)
    turns = (
        Grouped(keys, (key_dim, key_dim, share * value_dim, share * value_dim)),
        Grouped(keys, (share, share)),
    )
    rows = (2 * keys * key_dim + 2 * values * value_dim, 2 * values)
    names = (f"{at}in_proj_qkvz.weight", f"{at}in_proj_ba.weight")
    weights = {
        "in_proj.weight": Source(names, rows, grouped=turns),
        **conv(f"{at}conv1d", bias=False),
        **same(*((n, at + n) for n in ("A_log", "dt_bias", "norm.weight", "out_proj.weight"))),
    }
    return Part(made, weights)


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, delta, mlp, experts = m.maybe("attn"), m.maybe("delta"), m.maybe("mlp"), m.op("moe")
    fields: dict[str, Any] = {
        **ends(m),
        **aux_of(experts),
        "rms_norm_eps": m.op("norm").eps,
        "layer_types": [FULL if a else LINEAR for a in m.layers_with("attn")],
        "intermediate_size": mlp.hidden if mlp else 5632,
        "hidden_act": activation_of(experts),
        "mlp_only_layers": [i for i, dense in enumerate(m.layers_with("mlp")) if dense],
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "norm_topk_prob": experts.renormalize,
        "moe_intermediate_size": experts.hidden,
        "shared_expert_intermediate_size": experts.shared,
    }
    if attn:
        fields |= {**heads_of(attn), **rope_of(attn.rope, partial=True)}
        fields |= {"attention_bias": attn.bias, "attention_dropout": attn.dropout}
    if delta:
        fields |= {
            "linear_num_value_heads": delta.heads,
            "linear_num_key_heads": delta.key_heads,
            "linear_key_head_dim": delta.key_dim,
            "linear_value_head_dim": delta.value_dim,
            "linear_conv_kernel_dim": delta.conv,
        }
    return fields
