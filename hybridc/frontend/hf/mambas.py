"""Mamba and Mamba-2 mixers as the configs of several families describe them."""

from __future__ import annotations

import math
from typing import Any

from hybridc.diagnostics import NO_SPAN
from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.inverse import limit_of
from hybridc.frontend.hf.parts import Part, mamba, mamba2

LAYER_TYPES = {
    "mamba": "linear_attention",
    "linear_attention": "linear_attention",
    "attention": "full_attention",
    "full_attention": "full_attention",
}
"""Kinds of layers of hybrids: what the library calls them now, by that and by what it called them before."""

_SILU = {"silu": "silu", "swish": "silu"}


def rank(c: Config, name: str, dim: int) -> int:
    """The rank of dt's projection, which may be "auto"."""
    given = c.take(name, "auto", (int, str))
    if given == "auto":
        return math.ceil(dim / 16)
    if not isinstance(given, int) or given < 1:
        c.refuse(name, given, 'give a rank of 1 or more, or "auto"')
        return 1
    return given


def mixer(c: Config, dim: int, norm: ast.Call | None) -> Part:
    """The mixer of families that consist of Mamba."""
    c.choice("hidden_act", "silu", _SILU)
    c.ignore("time_step_scale", "time_step_init_scheme")  # how dt's projection starts
    inner = c.integer("intermediate_size", c.integer("expand", 2) * dim)
    return mamba(
        "mixer.",
        state=unless(c.integer("state_size", 16), 16),
        inner=unless(inner, 2 * dim),
        conv=unless(c.integer("conv_kernel", 4), 4),
        dt_rank=unless(rank(c, "time_step_rank", dim), math.ceil(dim / 16)),
        conv_bias=unless(c.flag("use_conv_bias", True), True),
        proj_bias=unless(c.flag("use_bias", False), False),
        dt_min=unless(c.number("time_step_min", 0.001), 0.001),
        dt_max=unless(c.number("time_step_max", 0.1), 0.1),
        dt_floor=unless(c.number("time_step_floor", 1e-4), 1e-4),
        norm=norm,
    )


def mixer_of(ssm: Any, dim: int) -> dict[str, Any]:
    """The inverse of `mixer`."""
    return {
        "state_size": ssm.state,
        "expand": max(1, ssm.inner // dim),
        "intermediate_size": ssm.inner,
        "conv_kernel": ssm.conv,
        "time_step_rank": ssm.dt_rank,
        "use_conv_bias": ssm.conv_bias,
        "use_bias": ssm.proj_bias,
        "time_step_min": ssm.dt_min,
        "time_step_max": ssm.dt_max,
        "time_step_floor": ssm.dt_floor,
    }


SIDE_FIELDS = (
    "mamba_n_heads",
    "mamba_n_groups",
    "mamba_expand",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_d_conv",
    "mamba_chunk_size",
    "mamba_conv_bias",
    "mamba_proj_bias",
    "time_step_limit",
)
"""What `side_mixer` reads, and what says nothing where no layer has such a mixer."""


def side_mixer(c: Config, dim: int, eps: float) -> Part:
    """The Mamba-2 mixer of families that have it beside attention, with fields `mamba_...`."""
    heads, groups = c.integer("mamba_n_heads", 128), c.integer("mamba_n_groups", 1)
    inner = c.integer("mamba_expand", 2) * dim
    head_dim: Any = c.take("mamba_d_head", "auto", (int, str))
    head_dim = inner // heads if head_dim == "auto" else head_dim
    if head_dim * heads != inner:
        label = f"mamba_n_heads {heads} x mamba_d_head {head_dim} is not mamba_expand x hidden_size, {inner}"
        c.sink.report("HYB503", NO_SPAN, label, "fix the config: the two products are the same number")
        head_dim = 1
    bias = c.flag("mamba_proj_bias", False)
    return mamba2(
        "mamba.",
        heads=heads,
        head_dim=unless(head_dim, 64),
        state=unless(c.integer("mamba_d_state", 256), 128),
        groups=unless(groups, 1),
        conv=unless(c.integer("mamba_d_conv", 4), 4),
        chunk=unless(c.integer("mamba_chunk_size", 256), 256),
        conv_bias=unless(c.flag("mamba_conv_bias", True), True),
        proj_bias=unless(bias, False),
        out_bias=unless(bias, False),
        dt_limit=unless(c.numbers("time_step_limit", (0.0, math.inf)), (0.0, math.inf)),
        norm=call("gated_rmsnorm", eps=unless(eps, 1e-5), groups=unless(groups, 1)),
    )


def side_mixer_of(ssm: Any, dim: int) -> dict[str, Any]:
    """The inverse of `side_mixer`."""
    return {
        "mamba_n_heads": ssm.heads,
        "mamba_d_head": ssm.head_dim,
        "mamba_expand": ssm.heads * ssm.head_dim // dim,
        "mamba_d_state": ssm.state,
        "mamba_n_groups": ssm.groups,
        "mamba_d_conv": ssm.conv,
        "mamba_chunk_size": ssm.chunk,
        "mamba_conv_bias": ssm.conv_bias,
        "mamba_proj_bias": ssm.proj_bias,
        "time_step_limit": limit_of(ssm),
    }
