"""Parts of a layer: an op, and where the public file has its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.weightmap import Source, joined, same


@dataclass(frozen=True)
class Part:
    """An op of a layer. `weights`: our parameters below the op, and the public tensors below the layer that they are.

    `alternatives` are other layouts that a file may come in, as in WeightMap.
    """

    call: ast.Call
    weights: Mapping[str, Source]
    alternatives: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Heads:
    """Sizes of an attention: query heads, key and value heads, channels of a head."""

    query: int
    key_value: int
    dim: int

    @property
    def rows(self) -> tuple[int, int, int]:
        """Rows of the projections to queries, keys and values."""
        return self.query * self.dim, self.key_value * self.dim, self.key_value * self.dim


def heads(
    c: Config, dim: int, *, query: int = 32, key_value: int | None = None, head_dim: int | None = None
) -> Heads:  # fmt: skip
    """`num_attention_heads`, `num_key_value_heads` and `head_dim`; the arguments are what the family takes for a field
    that is absent. A null, or a None here, means as many as query heads, and the width over the heads."""
    queries = c.integer("num_attention_heads", query)
    absent = "num_key_value_heads" not in c.values
    keys = c.integer("num_key_value_heads", key_value if absent and key_value is not None else queries)
    share = max(1, dim // queries)
    width = c.integer("head_dim", head_dim if "head_dim" not in c.values and head_dim is not None else share)
    return Heads(queries, keys, width)


def suffixes(bias: bool) -> tuple[str, ...]:
    """What a projection's tensors end in."""
    return ("weight", "bias") if bias else ("weight",)


def norm_suffixes(norm: ast.Call) -> tuple[str, ...]:
    """What the tensors of a norm end in."""
    given = {k.name: k.value for k in norm.kwargs}
    if given.get("affine") == ast.Bool(False):
        return ()
    return suffixes(norm.func == "layernorm" and given.get("bias") != ast.Bool(False))


def attention(
    h: Heads,
    dim: int,
    *,
    at: str = "self_attn.",
    names: Sequence[str] = ("q_proj", "k_proj", "v_proj"),
    out: str = "o_proj",
    fused: bool = False,
    bias: bool = False,
    out_bias: bool = False,
    qk_norm: ast.Call | None = None,
    qk_norm_names: tuple[str, str] = ("q_norm", "k_norm"),
    out_norm: ast.Call | None = None,
    out_norm_name: str = "",
    **attributes: Any,
) -> Part:
    """`attention(...)` on a stream of width `dim`; `names` are the projections to queries, keys and values, or the one
    that holds all three when `fused`. `attributes` that are None, false or 1.0 where the op has that are left out."""
    made = call(
        "attention",
        heads=h.query,
        kv_heads=unless(h.key_value, h.query),
        head_dim=unless(h.dim, dim / h.query),
        bias=unless(bias, False),
        out_bias=unless(out_bias, False),
        qk_norm=qk_norm,
        out_norm=out_norm,
        **{k: v for k, v in attributes.items() if v is not False},
    )
    if fused:
        weights = same(*((f"qkv.{s}", f"{at}{names[0]}.{s}") for s in suffixes(bias)))
    else:
        weights = joined("qkv", [(at + n, r) for n, r in zip(names, h.rows, strict=True)], suffixes(bias))
    weights |= same(*((f"out.{s}", f"{at}{out}.{s}") for s in suffixes(out_bias)))
    if qk_norm is not None:
        for ours, theirs in zip(("q_norm", "k_norm"), qk_norm_names, strict=True):
            weights |= same(*((f"{ours}.{s}", f"{at}{theirs}.{s}") for s in norm_suffixes(qk_norm)))
    if out_norm is not None:
        weights |= same(*((f"out_norm.{s}", f"{at}{out_norm_name}.{s}") for s in norm_suffixes(out_norm)))
    if attributes.get("sinks"):
        weights |= same(("sinks", f"{at}sinks"))
    return Part(made, weights)


def gated_mlp(
    hidden: int,
    act: str = "silu",
    *,
    at: str = "mlp.",
    names: Sequence[str] = ("gate_proj", "up_proj"),
    down: str = "down_proj",
    fused: bool = False,
    bias: bool = False,
    **attributes: Any,
) -> Part:
    """`swiglu(...)` or a gated `mlp(...)`; `names` are the projections to the gate and the up part, or the one that
    holds both when `fused`."""
    given = {"bias": unless(bias, False), **attributes}
    presets = {"silu": "swiglu", "gelu": "geglu"}
    kind = presets.get(act, "mlp")
    made = call(kind, hidden, **({} if act in presets else {"act": act, "gated": True}), **given)
    if fused:
        weights = same(*((f"gate_up.{s}", f"{at}{names[0]}.{s}") for s in suffixes(bias)))
    else:
        weights = joined("gate_up", [(at + n, hidden) for n in names], suffixes(bias))
    weights |= same(*((f"down.{s}", f"{at}{down}.{s}") for s in suffixes(bias)))
    return Part(made, weights)


def plain_mlp(
    hidden: int, act: str, *, at: str = "mlp.", up: str = "up_proj", down: str = "down_proj", bias: bool = False
) -> Part:
    """`mlp(...)` without a gate."""
    pairs = [
        (f"{ours}.{s}", f"{at}{theirs}.{s}") for ours, theirs in (("up", up), ("down", down)) for s in suffixes(bias)
    ]
    return Part(call("mlp", hidden, act=unless(act, "silu"), bias=unless(bias, False)), same(*pairs))


def moe(
    experts: int,
    hidden: int,
    top_k: int,
    *,
    at: str = "mlp.",
    fused_at: str = "",
    router: str = "gate.weight",
    each: Sequence[str] = ("gate_proj", "up_proj"),
    each_down: str = "down_proj",
    act: str = "silu",
    gated: bool = True,
    router_bias: str = "",
    correction_bias: str = "",
    shared: int = 0,
    shared_at: str = "shared_expert.",
    shared_names: Sequence[str] = ("gate_proj", "up_proj"),
    shared_gate: str = "",
    **attributes: Any,
) -> Part:
    """`moe(...)`. Files have one tensor for each expert, `at + experts.N.` + `each` (gate, up) and `each_down`, or all
    of a layer in `experts.gate_up_proj` and `experts.down_proj`. Names that are given and not "" say that the part is
    there; `shared_names` are as for `gated_mlp` (one name: it holds both). `fused_at` is where transformers 5 has the
    module, if it renamed it."""
    made = call(
        "moe",
        experts=experts,
        hidden=hidden,
        top_k=top_k,
        act=unless(act, "silu"),
        gated=unless(gated, True),
        router_bias=unless(bool(router_bias), False),
        correction_bias=unless(bool(correction_bias), False),
        shared=unless(shared, 0),
        shared_gate=unless(bool(shared_gate), False),
        **{k: v for k, v in attributes.items() if v is not False or k == "renormalize"},
    )
    weights = same(("router.weight", at + router))
    if router_bias:
        weights |= same(("router.bias", at + router_bias))
    if correction_bias:
        weights |= same(("correction_bias", at + correction_bias))
    if shared:
        down = at + shared_at + "down_proj"
        if not gated:
            mlp = same(("up.weight", f"{at}{shared_at}up_proj.weight"), ("down.weight", f"{down}.weight"))
        else:
            mlp = dict(gated_mlp(shared, at=at + shared_at, names=shared_names, fused=len(shared_names) == 1).weights)
        weights |= {f"shared.{k}": v for k, v in mlp.items()}
    if shared_gate:
        weights |= same(("shared_gate.weight", at + shared_gate))
    first = "gate_up" if gated else "up"
    weights |= per_expert(at, experts, hidden, each if gated else (each[-1],), each_down, first)
    new = fused_at or at
    fused = same((f"experts.{first}", f"{new}experts.{first}_proj"), ("experts.down", f"{new}experts.down_proj"))
    if fused_at:
        others = [k for k in weights if not k.startswith("experts.")]
        fused |= {k: Source(tuple(new + n.removeprefix(at) for n in weights[k].names), weights[k].rows) for k in others}
    return Part(made, weights, {name: (source,) for name, source in fused.items()})


def sigmoid_moe(
    c: Config,
    experts: int,
    hidden: int,
    *,
    shared: int,
    groups: tuple[int, int],
    scaling: float,
    act: str = "silu",
    correction_bias: str = "gate.e_score_correction_bias",
    names: Mapping[str, str] | None = None,
    **where: Any,
) -> Part:
    """DeepSeek-V3's experts: sigmoid scores, a correction bias for the choice, groups; the last three arguments are the
    family's defaults of `n_group`, `topk_group` and `routed_scaling_factor`. `names` are the family's names of fields
    where they differ; `where` goes to `moe`."""
    field = {n: (names or {}).get(n, n) for n in ("n_group", "num_experts_per_tok", "norm_topk_prob")}
    count, top = c.integer(field["n_group"], groups[0]), c.integer("topk_group", groups[1])
    normed = c.flag(field["norm_topk_prob"], True)
    return moe(
        experts,
        hidden,
        c.integer(field["num_experts_per_tok"], 8),
        act=act,
        scores="sigmoid",
        correction_bias=correction_bias,
        # as many groups as are chosen from are none
        groups=None if top >= count else count,
        top_groups=None if top >= count else top,
        renormalize=unless(normed, True),
        renormalize_eps=1e-20 if normed else None,
        scaling=unless(c.number("routed_scaling_factor", scaling), 1.0),
        shared=shared,
        shared_at="shared_experts.",
        **where,
    )


def kda(
    heads: int,
    head_dim: int,
    *,
    rank: int,
    conv: int,
    act: str,
    norm_eps: float,
    lower_bound: float | None = None,
    at: str = "self_attn.",
    out: str = "o_proj",
) -> Part:
    """`kda(...)` with the names of Kimi Linear's projections, in full rank with a `rank` of 0."""
    made = call(
        "kda",
        heads=heads,
        head_dim=unless(head_dim, 128),
        gate_rank=unless(rank, 0),
        conv=unless(conv, 4),
        act=unless(act, "silu"),
        lower_bound=lower_bound,
        norm=call("gated_rmsnorm", eps=unless(norm_eps, 1e-5), gate_first=False, act="sigmoid"),
    )
    inner = heads * head_dim
    gates = ("f_a_proj", "g_a_proj") if rank else ("f_proj", "g_proj")
    rows = [(at + n, inner) for n in ("q_proj", "k_proj", "v_proj")]
    rows += [(f"{at}b_proj", heads), *((at + n, rank or inner) for n in gates)]
    taps = tuple(f"{at}{n}_conv1d.weight" for n in "qkv")
    weights = {
        **joined("in_proj", rows),
        "conv.weight": Source(taps, (inner,) * 3, squeeze=1),
        **same(("norm.weight", f"{at}o_norm.weight"), ("out_proj.weight", f"{at}{out}.weight")),
        **same(("dt_bias", f"{at}dt_bias")),
        "A_log": Source((f"{at}A_log",), shape=(1, 1, heads, 1)) if rank else Source((f"{at}A_log",)),
    }
    if rank:
        weights |= same(("f_up.weight", f"{at}f_b_proj.weight"), ("z_up.weight", f"{at}g_b_proj.weight"))
    return Part(made, weights)


def mla(
    heads: int,
    kv_rank: int,
    nope: int,
    rotated: int,
    value: int,
    *,
    q_rank: int | None,
    rope: ast.Call | None,
    norm: ast.Call,
    scale_factor: float = 1.0,
    at: str = "self_attn.",
    out: str = "o_proj",
    bias: bool = False,
    gate: str = "",
    dropout: float | None = None,
) -> Part:
    """`mla(...)` with DeepSeek's names of the projections. `scale_factor` multiplies the softmax's usual scale, `gate`
    is the projection that gates heads."""
    scale = (nope + rotated) ** -0.5
    made = call(
        "mla",
        heads=heads,
        kv_rank=kv_rank,
        nope_dim=nope,
        rope_dim=rotated,
        value_dim=unless(value, nope),
        q_rank=q_rank,
        rope=rope,
        norm=norm,
        scale=unless(scale * scale_factor, scale),
        bias=unless(bias, False),
        gated=unless(bool(gate), False),
        dropout=dropout,
    )
    names = [("kv_down", "kv_a_proj_with_mqa", bias), ("kv_up", "kv_b_proj", False), ("out", out, bias)]
    names += [("q_down", "q_a_proj", bias), ("q_up", "q_b_proj", False)] if q_rank else [("q", "q_proj", False)]
    names += [("gate", gate, False)] if gate else []
    pairs = [(f"{ours}.{s}", f"{at}{theirs}.{s}") for ours, theirs, biased in names for s in suffixes(biased)]
    norms = [("kv_norm", "kv_a_layernorm"), *([("q_norm", "q_a_layernorm")] if q_rank else [])]
    pairs += [(f"{ours}.{s}", f"{at}{theirs}.{s}") for ours, theirs in norms for s in norm_suffixes(norm)]
    return Part(made, same(*pairs))


def yarn_scale(c: Config) -> float:
    """What DeepSeek multiplies the softmax's scale with for a scaled rope: (0.1 mscale_all_dim ln(factor) + 1)²."""
    settings = c.values.get("rope_scaling") or c.values.get("rope_parameters")
    if not isinstance(settings, dict) or settings.get("rope_type", settings.get("type", "default")) == "default":
        return 1.0
    factor, weight = settings.get("factor"), settings.get("mscale_all_dim")
    if not isinstance(factor, (int, float)) or not isinstance(weight, (int, float)) or not weight or factor <= 1:
        return 1.0
    return float((0.1 * weight * math.log(factor) + 1.0) ** 2)


def per_expert(at: str, experts: int, hidden: int, each: Sequence[str], down: str, first: str) -> dict[str, Source]:
    """Experts' weights with one tensor for each expert; `each` are its gate and up part, or only the up part."""
    ups = tuple(f"{at}experts.{e}.{w}.weight" for e in range(experts) for w in each)
    downs = tuple(f"{at}experts.{e}.{down}.weight" for e in range(experts))
    rows = (hidden,) * len(each) if len(each) > 1 else ()
    return {f"experts.{first}": Source(ups, rows, experts), "experts.down": Source(downs, (), experts)}


def aux_loss(c: Config, default: float) -> float | None:
    """The balancing loss's coefficient: transformers adds the loss only where it returns the router's logits."""
    coefficient = c.number("router_aux_loss_coef", default)
    return unless(coefficient if c.flag("output_router_logits", False) else 0.0, 0.0)  # type: ignore[no-any-return]


def mamba2(at: str, **attributes: Any) -> Part:
    """`mamba2(...)`, whose weights all public families name alike."""
    made = call("mamba2", **attributes)
    given = {k.name: k.value for k in made.kwargs}
    names = ["A_log", "D", "dt_bias", "in_proj.weight", "out_proj.weight"]
    names += ["in_proj.bias"] if given.get("proj_bias") == ast.Bool(True) else []
    names += ["out_proj.bias"] if given.get("out_bias") == ast.Bool(True) else []
    names += ["norm.weight"] if "norm" in given else []
    weights = same(*((n, at + n) for n in names))
    return Part(made, {**weights, **conv(at + "conv1d", bias=given.get("conv_bias") != ast.Bool(False))})


def mamba(at: str, *, norm: ast.Call | None = None, **attributes: Any) -> Part:
    """`mamba(...)`, whose weights all public families name alike; `norm` is that of dt, B and C."""
    made = call("mamba", **attributes, norm=norm)
    given = {k.name: k.value for k in made.kwargs}
    names = ["A_log", "D", "dt_proj.weight", "dt_proj.bias", "x_proj.weight"]
    names += [f"{n}.{s}" for n in ("in_proj", "out_proj") for s in suffixes(given.get("proj_bias") == ast.Bool(True))]
    weights = same(*((n, at + n) for n in names))
    if norm is not None:
        pairs = (("dt_norm", "dt_layernorm"), ("B_norm", "b_layernorm"), ("C_norm", "c_layernorm"))
        weights |= same(*((f"{ours}.{s}", f"{at}{theirs}.{s}") for ours, theirs in pairs for s in norm_suffixes(norm)))
    return Part(made, {**weights, **conv(at + "conv1d", bias=given.get("conv_bias") != ast.Bool(False))})


def conv(theirs: str, *, bias: bool, ours: str = "conv") -> dict[str, Source]:
    """A depthwise convolution: torch has [channels, 1, taps] where we have [channels, taps]."""
    weights = {f"{ours}.weight": Source((f"{theirs}.weight",), squeeze=1)}
    return {**weights, **same((f"{ours}.bias", f"{theirs}.bias"))} if bias else weights
