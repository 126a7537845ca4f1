"""nemotron_h: layers of one sublayer each: Mamba-2, attention without positions, mlp or experts (NVIDIA, 2025)."""

from __future__ import annotations

import math
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, normal_init, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import dropout
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of
from hybridc.frontend.hf.mamba2 import NAMES
from hybridc.frontend.hf.mambas import LAYER_TYPES
from hybridc.frontend.hf.parts import Part, attention, heads, mamba2, moe, plain_mlp, suffixes
from hybridc.frontend.hf.weightmap import WeightMap, same

LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
"""Letters of `hybrid_override_pattern` and the kinds of layers that they stand for."""

KINDS = {
    "linear_attention": ("Mamba", "ssm"),
    "full_attention": ("Attention", "attn"),
    "mlp": ("Mlp", "mlp"),
    "moe": ("Moe", "moe"),
}
"""Kinds of layers: names of their blocks and of the sublayers in them."""

_OLDER = {
    "n_groups": "mamba_n_groups",
    "conv_kernel": "mamba_d_conv",
    "time_step_min": "mamba_dt_min",
    "time_step_max": "mamba_dt_max",
    "time_step_floor": "mamba_dt_init_floor",
    "use_conv_bias": "mamba_conv_bias",
    "chunk_size": "mamba_chunk_size",
}
"""Fields and older names, which the library prefers where both are there."""

_FOLLOWING = (
    "expand",
    "mamba_expand",
    "mamba_dt_limit",
    "time_step_limit",
    "attention_bias",
    "mamba_proj_bias",
    "n_shared_experts",
    "num_hidden_layers",
    "rope_theta",
    "partial_rotary_factor",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "norm_eps",
    "tie_word_embeddings",
)
"""What the library does not look at: attention of this family has no biases, positions and windows, the head is never
tied, a mixer is as wide as its heads, dt has no upper limit, and there is one shared expert, of a width of its own."""

_ELSEWHERE = (
    "mamba_ssm_cache_dtype",
    "moe_shared_expert_overlap",
    "residual_in_fp32",
    "output_router_logits",
    "num_nextn_predict_layers",
    "mtp_layers_block_type",
    "mtp_hybrid_override_pattern",
)
"""How and where the library computes, and depths behind the model's own, which it does not load."""


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    for name, older in _OLDER.items():
        if older in c.values:
            c.values[name] = c.values.pop(older)
    dim, vocab = c.integer("hidden_size", 4096), c.integer("vocab_size", 131072)
    c.ignore(*_FOLLOWING, *_ELSEWHERE)
    eps, bias = c.number("layer_norm_epsilon", 1e-5), c.flag("mlp_bias", False)
    act = c.choice("mlp_hidden_act", "relu2", ACTIVATIONS)
    h = heads(c, dim, key_value=8, head_dim=128)
    c.refuse_unless("attention_head_dim", h.dim, [h.dim], "head_dim says how wide a head is")
    parts = {
        "ssm": _mixer(c, eps),
        "attn": attention(h, dim, at="mixer.", dropout=dropout(c)),
        "mlp": plain_mlp(c.integer("intermediate_size", 21504), act, at="mixer.", bias=bias),
        "moe": _experts(c, act, bias),
    }
    types = _types(c)

    def kind(name: str) -> Layer:
        block, label = KINDS[name]
        return layer(block, pipe("norm", label), parts={label: parts[label]}, norms=("norm",))

    std, depth = c.number("initializer_range", 0.02), c.flag("rescale_prenorm_residual", True)
    return decoder(
        "nemotron_h",
        dim,
        vocab,
        [kind(t) for t in types],
        call("rmsnorm", eps=eps),
        names=NAMES,
        init=ast.Entry("init", call("normal", std=std, depth=True)) if depth else normal_init(std),
        order=letters("".join(letter for t in types for letter, kind in LETTERS.items() if kind == t)),
        ignored=("mtp.*",),
    )


def letters(text: str) -> ast.Call:
    """`pattern("M-M*", M=Mamba, "-"=Mlp, "*"=Attention)` with the blocks that occur."""
    named = (ast.Keyword(k, ast.Name(KINDS[kind][0]), not k.isalpha()) for k, kind in LETTERS.items() if k in text)
    return ast.Call("pattern", (ast.Str(text),), tuple(named))


def _types(c: Config) -> list[str]:
    """The kind of each layer, from the list, else the string of letters, else what the library has without both."""
    options = {**LAYER_TYPES, "mlp": "mlp", "moe": "moe"}
    name = "layer_types" if "layer_types" in c.values else "layers_block_type"
    listed, text = c.words(name, options), c.take("hybrid_override_pattern", None, str)
    if listed:
        return listed
    if text is None:
        return ["linear_attention", "moe", "full_attention", "mlp"]
    if not text:
        c.refuse("hybrid_override_pattern", text, f"name a layer by each letter: {', '.join(LETTERS)}")
    if unknown := [letter for letter in text if letter not in LETTERS]:
        c.refuse("hybrid_override_pattern", text, f"`{unknown[0]}` is no kind of layer: use {', '.join(LETTERS)}")
        return ["mlp"]
    return [LETTERS[letter] for letter in text] or ["mlp"]


def _mixer(c: Config, eps: float) -> Part:
    c.choice("mamba_hidden_act", "silu", {"silu": "silu", "swish": "silu"})
    groups, bias = c.integer("n_groups", 8), c.flag("use_bias", False)
    low = c.number("time_step_min", 0.001)
    return mamba2(
        "mixer.",
        heads=c.integer("mamba_num_heads", 128),
        head_dim=unless(c.integer("mamba_head_dim", 64), 64),
        state=unless(c.integer("ssm_state_size", 128), 128),
        groups=unless(groups, 1),
        conv=unless(c.integer("conv_kernel", 4), 4),
        chunk=unless(c.integer("chunk_size", 128), 256),
        conv_bias=unless(c.flag("use_conv_bias", True), True),
        proj_bias=unless(bias, False),
        out_bias=unless(bias, False),
        # where steps start is where they end as well
        dt_limit=(low, math.inf),
        norm=call("gated_rmsnorm", eps=unless(eps, 1e-5), groups=unless(groups, 1)),
        dt_min=unless(low, 0.001),
        dt_max=unless(c.number("time_step_max", 0.1), 0.1),
        dt_floor=unless(c.number("time_step_floor", 1e-4), 1e-4),
    )


def _experts(c: Config, act: str, bias: bool) -> Part:
    """Experts without gates, chosen by biased sigmoid scores from the best groups, in a narrower width if there is
    one."""
    latent = c.integer("moe_latent_size", None)
    count, top = c.integer("n_group", 1), c.integer("topk_group", 1)
    normed = c.flag("norm_topk_prob", True)
    made = moe(
        c.integer("n_routed_experts", c.integer("num_local_experts", 8)),
        c.integer("moe_intermediate_size", 7688),
        c.integer("num_experts_per_tok", 2),
        at="mixer.",
        act=act,
        gated=False,
        scores="sigmoid",
        correction_bias="gate.e_score_correction_bias",
        groups=None if top >= count else count,
        top_groups=None if top >= count else top,
        renormalize=unless(normed, True),
        renormalize_eps=1e-20 if normed else None,
        scaling=unless(c.number("routed_scaling_factor", 1.0), 1.0),
        latent=latent,
        latent_bias=bias and latent is not None,
        shared=c.integer("moe_shared_expert_intermediate_size", 7688),
        shared_at="shared_experts.",
        shared_bias=bias,
    )
    weights = dict(made.weights)
    if bias:
        weights |= same(*((f"shared.{n}.bias", f"mixer.shared_experts.{n}_proj.bias") for n in ("up", "down")))
    if latent is not None:
        pairs = (("latent_down", "fc1_latent_proj"), ("latent_up", "fc2_latent_proj"))
        weights |= same(*((f"{ours}.{s}", f"mixer.{theirs}.{s}") for ours, theirs in pairs for s in suffixes(bias)))
    return Part(made.call, weights, made.alternatives)


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, ssm, mlp, experts = (m.maybe(label) for label in ("attn", "ssm", "mlp", "moe"))
    fields = {**ends(m), "layer_norm_epsilon": m.op("norm").eps, "rescale_prenorm_residual": m.module.init.depth}
    if attn is not None:
        fields |= {**heads_of(attn), "attention_dropout": attn.dropout}
    if ssm is not None:
        fields |= {
            "mamba_num_heads": ssm.heads,
            "mamba_head_dim": ssm.head_dim,
            "ssm_state_size": ssm.state,
            "n_groups": ssm.groups,
            "conv_kernel": ssm.conv,
            "chunk_size": ssm.chunk,
            "use_conv_bias": ssm.conv_bias,
            "use_bias": ssm.proj_bias,
            "time_step_min": ssm.dt_limit[0],
            "time_step_max": ssm.dt_max,
            "time_step_floor": ssm.dt_floor,
        }
    if mlp is not None:
        fields |= {"intermediate_size": mlp.hidden, "mlp_bias": mlp.bias}
    if experts is not None:
        fields |= {
            "n_routed_experts": experts.experts,
            "num_experts_per_tok": experts.top_k,
            "moe_intermediate_size": experts.hidden,
            "moe_shared_expert_intermediate_size": experts.shared,
            "moe_latent_size": experts.latent or None,
            "mlp_bias": experts.shared_bias,
            "n_group": experts.groups,
            "topk_group": experts.top_groups,
            "norm_topk_prob": experts.renormalize,
            "routed_scaling_factor": experts.scaling,
        }
    if mlp or experts:
        fields["mlp_hidden_act"] = activation_of(mlp or experts)
    sublayers = {label: kind for kind, (_, label) in KINDS.items()}
    marked = {label: m.layers_with(label) for label in sublayers}
    types = [next(k for label, k in sublayers.items() if marked[label][i]) for i in range(len(m.kinds))]
    return {**fields, "layers_block_type": types}
