"""falcon_h1: attention and Mamba-2 side by side in every layer, with multipliers (Falcon-H1 report, 2025)."""

from __future__ import annotations

from typing import Any

from hybridc.diagnostics import NO_SPAN
from hybridc.frontend import ast
from hybridc.frontend.hf.build import block, call, expr, model, normal_init, pipe, scale, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap, joined, layered, mamba2_weights, same


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = (
        c.integer("hidden_size", 4096),
        c.integer("vocab_size", 128000),
        c.integer("num_hidden_layers", 32),
    )
    eps, tied = c.number("rms_norm_eps", 1e-5), c.flag("tie_word_embeddings", False)
    c.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"})
    _only_hybrid(c, depth)
    # published configs carry these; transformers reads none of them (the time steps' range is for starting weights)
    c.ignore("mlp_expansion_factor", "time_step_min", "time_step_max", "time_step_floor")
    c.refuse_unless("mamba_use_mlp", True, [True], "every layer of this family has a feed-forward part")
    heads = c.integer("num_attention_heads", 32)
    kv_heads = c.integer("num_key_value_heads", 8 if "num_key_value_heads" not in c.values else heads)
    head_dim = c.integer("head_dim", dim // heads)
    bias = c.flag("attention_bias", False)
    attention = call(
        "attention",
        heads=heads,
        kv_heads=unless(kv_heads, heads),
        head_dim=unless(head_dim, dim / heads),
        rope=rope(c, theta=10000.0, max_positions=8192),
        bias=unless(bias, False),
        out_bias=unless(bias, False),
        key_scale=unless(c.number("key_multiplier", 1.0), 1.0),
    )
    mixer = _mamba(c, dim, eps)
    hidden, mlp_bias = c.integer("intermediate_size", 14336), c.flag("mlp_bias", False)
    gate, down = c.numbers("mlp_multipliers", (1.0, 1.0))
    mlp = call("swiglu", hidden, bias=unless(mlp_bias, False), gate_scale=unless(gate, 1.0))
    parallel = ast.Parallel(
        (
            pipe(
                scale(c.number("attention_in_multiplier", 1.0)),
                ast.Label("attn", attention),
                scale(c.number("attention_out_multiplier", 1.0)),
            ),
            pipe(
                scale(c.number("ssm_in_multiplier", 1.0)),
                ast.Label("ssm", mixer),
                scale(c.number("ssm_out_multiplier", 1.0)),
            ),
        )
    )
    embed = call("embedding", vocab, "dim", scale=unless(c.number("embedding_multiplier", 1.0), 1.0))
    head = call(
        "lm_head", vocab, scale=unless(c.number("lm_head_multiplier", 1.0), 1.0), tied=unless(tied, False)
    )  # fmt: skip
    spec = model(
        "falcon_h1",
        [
            ast.Param("dim", expr(dim)),
            ast.Let("norm", call("rmsnorm", eps=eps)),
            block("H", pipe("norm", parallel), pipe("norm", ast.Label("mlp", mlp), scale(down))),
            ast.Entry("embed", embed),
            ast.Entry("layers", ast.Binary("*", ast.Name("H"), expr(depth))),
            ast.Entry("head", pipe("norm", head)),
            normal_init(c.number("initializer_range", 0.02)),
        ],
    )
    q, kv = heads * head_dim, kv_heads * head_dim
    suffixes = ("weight", "bias") if bias else ("weight",)
    mlp_suffixes = ("weight", "bias") if mlp_bias else ("weight",)
    layer = {
        **joined("attn.qkv", [("self_attn.q_proj", q), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)], suffixes),
        **same(*((f"attn.out.{s}", f"self_attn.o_proj.{s}") for s in suffixes)),
        **mamba2_weights("ssm.", "mamba.", mixer),
        **joined("mlp.gate_up", [("feed_forward.gate_proj", hidden), ("feed_forward.up_proj", hidden)], mlp_suffixes),
        **same(*((f"mlp.down.{s}", f"feed_forward.down_proj.{s}") for s in mlp_suffixes)),
        **same(("norm.weight", "input_layernorm.weight"), ("norm_2.weight", "pre_ff_layernorm.weight")),
    }
    sources = {
        **same(("embed.embedding.weight", "model.embed_tokens.weight")),
        **layered(depth, "layers.{i}.", "model.layers.{i}.", layer),
        **same(("head.norm.weight", "model.final_layernorm.weight")),
        **({} if tied else same(("head.lm_head.weight", "lm_head.weight"))),
    }
    return spec, WeightMap(sources, ignored=("lm_head.weight",) if tied else ())


def _only_hybrid(c: Config, depth: int) -> None:
    why = "every layer of this family is hybrid"
    for name in ("layers_block_type", "layer_types"):
        c.refuse_unless(name, ["hybrid"] * depth, [["hybrid"] * depth], why)
    c.refuse_unless("attn_layer_indices", [], [[], list(range(depth))], why)


def _mamba(c: Config, dim: int, eps: float) -> ast.Call:
    heads, groups, state = (
        c.integer("mamba_n_heads", 128),
        c.integer("mamba_n_groups", 1),
        c.integer("mamba_d_state", 256),
    )
    inner = c.integer("mamba_d_ssm", c.integer("mamba_expand", 2) * dim if "mamba_d_ssm" in c.values else 1024)
    head_dim: Any = c.take("mamba_d_head", "auto", (int, str))
    head_dim = inner // heads if head_dim == "auto" else head_dim
    if not isinstance(head_dim, int) or head_dim * heads != inner:
        label = f"mamba_n_heads {heads} x mamba_d_head {head_dim} is not mamba_d_ssm {inner}"
        c.sink.report("HYB503", NO_SPAN, label, "fix the config: the product of the two is the third")
        head_dim = 1
    norm = None
    before = c.flag("mamba_norm_before_gate", True)
    if c.flag("mamba_rms_norm", False):
        norm = call(
            "gated_rmsnorm", eps=unless(eps, 1e-5), groups=unless(groups, 1), gate_first=unless(not before, True)
        )  # fmt: skip
    limit = c.numbers("time_step_limit", (0.0, float("inf")))
    scales = c.numbers("ssm_multipliers", (1.0,) * 5)
    return call(
        "mamba2",
        heads=heads,
        head_dim=unless(head_dim, 64),
        state=unless(state, 128),
        groups=unless(groups, 1),
        conv=unless(c.integer("mamba_d_conv", 4), 4),
        chunk=unless(c.integer("mamba_chunk_size", 256), 256),
        conv_bias=unless(c.flag("mamba_conv_bias", True), True),
        proj_bias=unless(c.flag("mamba_proj_bias", False), False),
        out_bias=unless(c.flag("projectors_bias", False), False),
        dt_limit=unless(limit, (0.0, float("inf"))),
        norm=norm,
        in_scales=unless(scales, (1.0,) * 5),
    )
