"""mamba2: a stack of Mamba-2 mixers (Dao and Gu, 2024)."""

from __future__ import annotations

from hybridc.diagnostics import NO_SPAN
from hybridc.frontend import ast
from hybridc.frontend.hf.build import block, call, expr, model, pipe, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.weightmap import WeightMap, layered, mamba2_weights, same


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = (
        c.integer("hidden_size", 4096),
        c.integer("vocab_size", 32768),
        c.integer("num_hidden_layers", 64),
    )
    heads, head_dim = c.integer("num_heads", 128), c.integer("head_dim", 64)
    expand = c.integer("expand", 2)
    if heads * head_dim != expand * dim:
        label = f"num_heads {heads} x head_dim {head_dim} is not expand {expand} x hidden_size {dim}"
        c.sink.report("HYB503", NO_SPAN, label, "fix the config: the two products are the same number")
    c.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"})
    # says that the stream is fp32, which it is here unless the net is cast; the rank is Mamba-1's
    c.ignore("time_step_rank", "residual_in_fp32")
    # older configs carry these; transformers' mixer normalises the gated value whatever they say
    c.refuse_unless("rms_norm", True, [True], "the mixers of this family have a norm")
    c.ignore("norm_before_gate")
    rescaled = c.flag("rescale_prenorm_residual", False)
    eps, tied = c.number("layer_norm_epsilon", 1e-5), c.flag("tie_word_embeddings", False)
    bias, groups = c.flag("use_bias", False), c.integer("n_groups", 8)
    mixer = call(
        "mamba2",
        heads=heads,
        head_dim=unless(head_dim, 64),
        state=unless(c.integer("state_size", 128), 128),
        groups=unless(groups, 1),
        conv=unless(c.integer("conv_kernel", 4), 4),
        chunk=unless(c.integer("chunk_size", 256), 256),
        conv_bias=unless(c.flag("use_conv_bias", True), True),
        proj_bias=unless(bias, False),
        out_bias=unless(bias, False),
        dt_limit=unless(c.numbers("time_step_limit", (0.0, float("inf"))), (0.0, float("inf"))),
        norm=call("gated_rmsnorm", eps=unless(eps, 1e-5), groups=unless(groups, 1)),
        dt_min=unless(c.number("time_step_min", 0.001), 0.001),
        dt_max=unless(c.number("time_step_max", 0.1), 0.1),
        dt_floor=unless(c.number("time_step_floor", 1e-4), 1e-4),
    )
    spec = model(
        "mamba2",
        [
            ast.Param("dim", expr(dim)),
            ast.Let("norm", call("rmsnorm", eps=eps)),
            block("M", pipe("norm", ast.Label("ssm", mixer))),
            ast.Entry("embed", call("embedding", vocab, "dim")),
            ast.Entry("layers", ast.Binary("*", ast.Name("M"), expr(depth))),
            ast.Entry("head", pipe("norm", call("lm_head", vocab, tied=unless(tied, False)))),
            ast.Entry("init", call("kaiming", depth=rescaled)),
        ],
    )
    layer = {**mamba2_weights("ssm.", "mixer.", mixer), **same(("norm.weight", "norm.weight"))}
    sources = {
        **same(("embed.embedding.weight", "backbone.embeddings.weight")),
        **layered(depth, "layers.{i}.", "backbone.layers.{i}.", layer),
        **same(("head.norm.weight", "backbone.norm_f.weight")),
        **({} if tied else same(("head.lm_head.weight", "lm_head.weight"))),
    }
    return spec, WeightMap(sources, ignored=("lm_head.weight",) if tied else ())
