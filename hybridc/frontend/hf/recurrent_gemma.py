"""recurrent_gemma: Griffin's recurrent blocks with windowed attention in every third layer (De et al., 2024)."""

from __future__ import annotations

import math
import struct
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, Names, decoder, layer
from hybridc.frontend.hf.fields import dropout, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, misfit, rope_of
from hybridc.frontend.hf.parts import Heads, Part, attention, conv, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Source, WeightMap, joined, same

NAMES = Names(norm="model.final_norm")
RECURRENT, ATTENTION = "recurrent", "attention"
CYCLE = [RECURRENT, RECURRENT, ATTENTION]


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2560, 256000, 26)
    c.rename({"sliding_window": "attention_window_size"})
    c.ignore("_block_types")  # in the published config; transformers takes its own default, which is the same
    c.ignore("final_w_init_variance_scale")  # 2 / layers, which `depth` of the init stands for
    c.refuse_unless("embeddings_scale_by_sqrt_dim", True, [True], "this family scales its embeddings")
    eps, act = c.number("rms_norm_eps", 1e-6), c.choice("hidden_activation", "gelu_pytorch_tanh", ACTIVATIONS)
    taps, scale = c.take("conv1d_width", 4, int, low=2), c.positive("w_init_variance_scale", 0.01) or 0.01
    h = heads(c, dim, query=10)
    mlp = gated_mlp(_hidden(c), act, at="mlp_block.", bias=True)
    mixers = {ATTENTION: _attention(c, h, dim), RECURRENT: _recurrent(c, h.query, dim, taps, act, scale)}

    def kind(name: str) -> Layer:
        label = {ATTENTION: "attn", RECURRENT: "rg_lru"}[name]
        return layer(
            name.capitalize(),
            pipe("norm", label),
            pipe("norm", "mlp"),
            parts={label: mixers[name], "mlp": mlp},
            norms=("temporal_pre_norm", "channel_pre_norm"),
        )

    return decoder(
        "recurrent_gemma",
        dim,
        vocab,
        [kind(name) for name in _types(c, depth)],
        call("rmsnorm", eps=eps, zero_centered=True),
        tied=c.flag("tie_word_embeddings", True),
        names=NAMES,
        embed={"scale": unless(bf16(dim**0.5), 1.0)},
        head={"softcap": _cap(c)},
        init=ast.Entry("init", call("normal", std=(scale / taps) ** 0.5)),
    )


def _hidden(c: Config) -> int:
    """Half of `intermediate_size`, which counts the gate's and the up part's channels."""
    return int(c.take("intermediate_size", 3 * 2560, int, low=2, high=(1 << 31) - 1)) // 2


def _cap(c: Config) -> float:
    """The cap of the logits, which this family cannot do without."""
    if "logits_soft_cap" in c.values and c.values["logits_soft_cap"] is None:
        c.refuse("logits_soft_cap", None, "give a number above 0: this family always caps its logits")
    return c.positive("logits_soft_cap", 30.0) or 30.0


def _types(c: Config, depth: int) -> list[str]:
    """The kind of each layer: `block_types`, again and again."""
    cycle = c.words("block_types", {RECURRENT: RECURRENT, ATTENTION: ATTENTION})
    if cycle is not None and not cycle:
        c.refuse("block_types", cycle, "name one kind of layer or more")
    cycle = cycle or CYCLE
    if len(cycle) * 100 < depth:
        c.refuse("num_hidden_layers", depth, "the family repeats block_types 100 times at most")
    return [cycle[i % len(cycle)] for i in range(depth)]


def _attention(c: Config, h: Heads, dim: int) -> Part:
    # a null is not what an absent field is
    partial = 0.5 if c.values.get("partial_rotary_factor", 0.5) is not None else 1.0
    settings = c.values.get("rope_scaling") or c.values.get("rope_parameters")
    if isinstance(settings, dict):
        kind = settings.get("rope_type", settings.get("type", "default"))
        if kind != "default":
            c.refuse("rope_type", kind, "this family's rope is not scaled: use `default`")
    return attention(
        h,
        dim,
        at="temporal_block.",
        rope=rope(c, theta=10000.0, max_positions=8192, partial=partial, may_be_partial=True),
        window=c.integer("attention_window_size", 2048),
        bias=c.flag("attention_bias", False),
        out_bias=True,
        dropout=dropout(c),
    )


def _recurrent(c: Config, blocks: int, dim: int, taps: int, act: str, scale: float) -> Part:
    inner, at = c.integer("lru_width", dim), "temporal_block."
    if inner % blocks:
        c.refuse("lru_width", inner, f"use a multiple of num_attention_heads, {blocks}: the gates have as many blocks")
    made = call(
        "rg_lru",
        blocks=blocks,
        inner=unless(inner, dim),
        conv=unless(taps, 4),
        act=unless(act, "gelu_tanh"),
        init_scale=unless(scale, 1.0),
    )
    unit = at + "rg_lru."
    gates = (("input_gate", "input_gate"), ("recurrence_gate", "recurrent_gate"))
    weights = {
        **joined("in_proj", [(at + "linear_y", inner), (at + "linear_x", inner)], ("weight", "bias")),
        **conv(at + "conv_1d", bias=True),
        **{f"{ours}.weight": Source((f"{unit}{theirs}_weight",), transpose=True) for ours, theirs in gates},
        **same(*((f"{ours}.bias", f"{unit}{theirs}_bias") for ours, theirs in gates)),
        **same(("Lambda", f"{unit}recurrent_param")),
        **same(*((f"out_proj.{s}", f"{at}linear_out.{s}") for s in ("weight", "bias"))),
    }
    return Part(made, weights)


def bf16(value: float) -> float:
    """The nearest bf16, ties to even: the family keeps the factor of its embeddings so."""
    bits: int = struct.unpack(">I", struct.pack(">f", value))[0]
    bits += 0x7FFF + ((bits >> 16) & 1)
    return float(struct.unpack(">f", struct.pack(">I", bits & 0xFFFF0000))[0])


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    if m.lm_head.softcap is None:
        raise misfit("the logits have no softcap")
    attn, unit = m.maybe("attn"), next(iter(m.of_kind("rg_lru")), None)
    types = [ATTENTION if a else RECURRENT for a in m.layers_with("attn")]
    period = next(n for n in range(1, len(types) + 1) if all(t == types[i % n] for i, t in enumerate(types)))
    fields = {k: v for k, v in ends(m).items() if k != "initializer_range"}
    if attn is not None:
        if attn.rope is not None and attn.rope.kind_ != "default":
            raise misfit(f"the rope is scaled ({attn.rope.kind_})")
        fields |= {**heads_of(attn), **rope_of(attn.rope, partial=True)}
        fields |= {
            "attention_window_size": attn.window,
            "attention_bias": attn.bias,
            "attention_dropout": attn.dropout,
        }
    if unit is not None:
        fields |= {"num_attention_heads": unit.blocks, "lru_width": unit.inner, "conv1d_width": unit.conv}
        fields["w_init_variance_scale"] = unit.init_scale
    else:
        fields["w_init_variance_scale"] = _scale_of(m.module.init.std)
    mlp = m.op("mlp")
    return {
        **fields,
        "block_types": types[:period],
        "rms_norm_eps": m.op("norm").eps,
        "logits_soft_cap": m.lm_head.softcap,
        "intermediate_size": 2 * mlp.hidden,
        "hidden_activation": activation_of(mlp),
    }


def _scale_of(std: float) -> float:
    """The variance scale of 4 taps whose spread is `std`, in few digits where that comes out."""
    found = std * std * 4
    near = (round(found, 9), found, math.nextafter(found, math.inf), math.nextafter(found, 0.0))
    return next((s for s in near if (s / 4) ** 0.5 == std), found)
