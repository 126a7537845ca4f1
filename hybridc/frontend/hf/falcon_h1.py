"""falcon_h1: attention and Mamba-2 side by side in every layer, with multipliers (Falcon-H1 report, 2025)."""

from __future__ import annotations

from typing import Any

from hybridc.diagnostics import NO_SPAN
from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, normal_init, pipe, scale, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import Names, decoder, layer
from hybridc.frontend.hf.inverse import Found, ends, heads_of, limit_of, rope_of
from hybridc.frontend.hf.parts import Part, attention, gated_mlp, heads, mamba2
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap

_NAMES = Names(norm="model.final_layernorm")


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = (
        c.integer("hidden_size", 4096),
        c.integer("vocab_size", 128000),
        c.integer("num_hidden_layers", 32),
    )
    eps = c.number("rms_norm_eps", 1e-5)
    c.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"})
    _only_hybrid(c, depth)
    # published configs carry these; transformers reads none of them (the time steps' range is for starting weights)
    c.ignore("mlp_expansion_factor", "time_step_min", "time_step_max", "time_step_floor")
    c.refuse_unless("mamba_use_mlp", True, [True], "every layer of this family has a feed-forward part")
    bias = c.flag("attention_bias", False)
    attn = attention(
        heads(c, dim, key_value=8),
        dim,
        rope=rope(c, theta=10000.0, max_positions=8192),
        bias=bias,
        out_bias=bias,
        key_scale=unless(c.number("key_multiplier", 1.0), 1.0),
        dropout=unless(c.share("attention_dropout", 0.0), 0.0),
    )
    gate, down = c.numbers("mlp_multipliers", (1.0, 1.0))
    mlp = gated_mlp(
        c.integer("intermediate_size", 14336),
        at="feed_forward.",
        bias=c.flag("mlp_bias", False),
        gate_scale=unless(gate, 1.0),
    )
    factors = ("attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier")
    before, behind, ssm_before, ssm_behind = (scale(c.number(name, 1.0)) for name in factors)
    mixers = ast.Parallel((pipe(before, "attn", behind), pipe(ssm_before, "ssm", ssm_behind)))
    kind = layer(
        "H",
        pipe("norm", mixers),
        pipe("norm", "mlp", scale(down)),
        parts={"attn": attn, "ssm": _mamba(c, dim, eps), "mlp": mlp},
        norms=("input_layernorm", "pre_ff_layernorm"),
    )
    return decoder(
        "falcon_h1",
        dim,
        vocab,
        [kind] * depth,
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        names=_NAMES,
        embed={"scale": unless(c.number("embedding_multiplier", 1.0), 1.0)},
        head={"scale": unless(c.number("lm_head_multiplier", 1.0), 1.0)},
        init=normal_init(c.number("initializer_range", 0.02)),
    )


def _only_hybrid(c: Config, depth: int) -> None:
    why = "every layer of this family is hybrid"
    for name in ("layers_block_type", "layer_types"):
        c.refuse_unless(name, ["hybrid"] * depth, [["hybrid"] * depth], why)
    c.refuse_unless("attn_layer_indices", [], [[], list(range(depth))], why)


def _mamba(c: Config, dim: int, eps: float) -> Part:
    n_heads, groups = c.integer("mamba_n_heads", 128), c.integer("mamba_n_groups", 1)
    inner = c.integer("mamba_d_ssm", c.integer("mamba_expand", 2) * dim if "mamba_d_ssm" in c.values else 1024)
    head_dim: Any = c.take("mamba_d_head", "auto", (int, str))
    head_dim = inner // n_heads if head_dim == "auto" else head_dim
    if not isinstance(head_dim, int) or head_dim * n_heads != inner:
        label = f"mamba_n_heads {n_heads} x mamba_d_head {head_dim} is not mamba_d_ssm {inner}"
        c.sink.report("HYB503", NO_SPAN, label, "fix the config: the product of the two is the third")
        head_dim = 1
    norm = None
    before = c.flag("mamba_norm_before_gate", True)
    if c.flag("mamba_rms_norm", False):
        norm = call(
            "gated_rmsnorm", eps=unless(eps, 1e-5), groups=unless(groups, 1), gate_first=unless(not before, True)
        )  # fmt: skip
    return mamba2(
        "mamba.",
        heads=n_heads,
        head_dim=unless(head_dim, 64),
        state=unless(c.integer("mamba_d_state", 256), 128),
        groups=unless(groups, 1),
        conv=unless(c.integer("mamba_d_conv", 4), 4),
        chunk=unless(c.integer("mamba_chunk_size", 256), 256),
        conv_bias=unless(c.flag("mamba_conv_bias", True), True),
        proj_bias=unless(c.flag("mamba_proj_bias", False), False),
        out_bias=unless(c.flag("projectors_bias", False), False),
        dt_limit=unless(c.numbers("time_step_limit", (0.0, float("inf"))), (0.0, float("inf"))),
        norm=norm,
        in_scales=unless(c.numbers("ssm_multipliers", (1.0,) * 5), (1.0,) * 5),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, ssm, mlp = m.op("attn"), m.op("ssm"), m.op("mlp")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "key_multiplier": attn.key_scale,
        "attention_in_multiplier": m.scale_before("attn"),
        "attention_out_multiplier": m.scale_behind("attn"),
        "ssm_in_multiplier": m.scale_before("ssm"),
        "ssm_out_multiplier": m.scale_behind("ssm"),
        "ssm_multipliers": list(ssm.in_scales or (1.0,) * 5),
        "mlp_multipliers": [mlp.gate_scale, m.scale_behind("mlp")],
        "embedding_multiplier": m.embedding.scale,
        "lm_head_multiplier": m.lm_head.scale,
        "intermediate_size": mlp.hidden,
        "mlp_bias": mlp.bias,
        "mamba_d_ssm": ssm.heads * ssm.head_dim,
        "mamba_n_heads": ssm.heads,
        "mamba_d_head": ssm.head_dim,
        "mamba_d_state": ssm.state,
        "mamba_n_groups": ssm.groups,
        "mamba_d_conv": ssm.conv,
        "mamba_chunk_size": ssm.chunk,
        "mamba_conv_bias": ssm.conv_bias,
        "mamba_proj_bias": ssm.proj_bias,
        "projectors_bias": ssm.out_bias,
        "time_step_limit": limit_of(ssm),
        "mamba_rms_norm": ssm.norm is not None,
        "mamba_norm_before_gate": ssm.norm is None or not ssm.norm.gate_first,
    }
