"""mamba2: a stack of Mamba-2 mixers (Dao and Gu, 2024)."""

from __future__ import annotations

from typing import Any

from hybridc.diagnostics import NO_SPAN
from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import Names, decoder, layer
from hybridc.frontend.hf.inverse import Found, ends, limit_of
from hybridc.frontend.hf.parts import mamba2
from hybridc.frontend.hf.weightmap import WeightMap

NAMES = Names("backbone.layers.{i}.", "backbone.embeddings.weight", "backbone.norm_f")


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
    eps, bias, groups = c.number("layer_norm_epsilon", 1e-5), c.flag("use_bias", False), c.integer("n_groups", 8)
    mixer = mamba2(
        "mixer.",
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
    return decoder(
        "mamba2",
        dim,
        vocab,
        [layer("M", pipe("norm", "ssm"), parts={"ssm": mixer}, norms=("norm",))] * depth,
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        names=NAMES,
        init=ast.Entry("init", call("kaiming", depth=c.flag("rescale_prenorm_residual", False))),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    ssm = m.op("ssm")
    return {
        **ends(m),
        "num_heads": ssm.heads,
        "head_dim": ssm.head_dim,
        "expand": ssm.heads * ssm.head_dim // m.embedding.dim,
        "state_size": ssm.state,
        "n_groups": ssm.groups,
        "conv_kernel": ssm.conv,
        "chunk_size": ssm.chunk,
        "use_conv_bias": ssm.conv_bias,
        "use_bias": ssm.proj_bias,
        "time_step_limit": limit_of(ssm),
        "time_step_min": ssm.dt_min,
        "time_step_max": ssm.dt_max,
        "time_step_floor": ssm.dt_floor,
        "layer_norm_epsilon": m.op("norm").eps,
        "rescale_prenorm_residual": m.module.init.depth,
    }
