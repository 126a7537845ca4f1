"""bitnet: llama with squared ReLU and norms in front of the last projections; ternary when its config says so.

Three kinds of files: master weights that are made ternary in each forward (`autobitlinear`, `online`), ternary weights
times `weight_scale` (`autobitlinear`, `offline`), and ternary weights over it (`bitlinear`). Ternary ones are in bytes,
four quarters of the rows in one; `offline` ones also in plain tensors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, misfit, rope_of
from hybridc.frontend.hf.parts import Part, attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Source, WeightMap, same


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2560, 128256, 30)
    h, bias, eps = heads(c, dim, query=20, key_value=5), c.flag("attention_bias", False), c.number("rms_norm_eps", 1e-5)
    norm = call("rmsnorm", eps=eps)
    attn = attention(
        h,
        dim,
        rope=rope(c, theta=500000.0, max_positions=2048),
        bias=bias,
        out_bias=bias,
        out_norm=norm,
        out_norm_name="attn_sub_norm",
        dropout=dropout(c),
    )
    mlp = gated_mlp(c.integer("intermediate_size", 6912), c.choice("hidden_act", "relu2", ACTIVATIONS), down_norm=norm)
    form = _form(c)
    if form == "offline" and bias:
        c.refuse("attention_bias", bias, "weights with `quantization_mode` offline have scales that biases are not for")
    if form in ("offline", "bitlinear"):
        attn, mlp = (_packed(part, dim, inverse=form == "bitlinear") for part in (attn, mlp))
    mlp = replace(mlp, weights={**mlp.weights, **same(("down_norm.weight", "mlp.ffn_sub_norm.weight"))})
    kind = layer(
        "Layer",
        pipe("norm", "attn"),
        pipe("norm", "mlp"),
        parts={"attn": attn, "mlp": mlp},
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    return decoder(
        "bitnet",
        dim,
        vocab,
        [kind] * depth,
        norm,
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
        precision=_precision(form),
    )


def _form(c: Config) -> str:
    """`online`, `offline` or `bitlinear` where the projections are quantized, else ""."""
    given = c.take("quantization_config", None, dict)
    if given is None:
        return ""
    settings = Config(given, c.family, within="quantization_config")
    settings.sink = c.sink
    settings.choice("quant_method", "bitnet", {"bitnet": "bitnet"})
    kind = settings.choice("linear_class", "bitlinear", {k: k for k in ("bitlinear", "autobitlinear")})
    mode = settings.choice("quantization_mode", "offline", {k: k for k in ("online", "offline")})
    settings.refuse_unless(
        "modules_to_not_convert", ["lm_head"], [["lm_head"]], "all projections but the head are ternary"
    )
    settings.refuse_unless("use_rms_norm", False, [False], "the norms are those of the family")
    settings.ignore("rms_norm_eps")  # of use_rms_norm
    settings.report_unknown()
    return mode if kind == "autobitlinear" else kind  # a bitlinear's mode is not read


def _precision(form: str) -> ast.Precision | None:
    """`bitnet on layers.**`, packed where the weights are ternary in the file."""
    if not form:
        return None
    everywhere = ast.Selector((ast.Step("layers"), ast.Step("**")))
    format = ast.Name("bitnet") if form == "online" else ast.Call("bitnet", (ast.Name("packed"),), ())
    return ast.Precision((ast.Rule(format, (everywhere,)),))


def _packed(part: Part, dim: int, *, inverse: bool) -> Part:
    """A part with projections of bytes and scales; those of one tensor end on the stream, which is `dim` wide. Files
    that scale ternary weights up may have them as plain tensors too."""
    weights: dict[str, Source] = {}
    others: dict[str, tuple[Source, ...]] = {}
    for name, source in part.weights.items():
        owner, _, leaf = name.rpartition(".")
        weights[name] = source
        if leaf != "weight" or owner.endswith("norm"):
            continue
        whole = Source(source.names, source.rows or (dim,), ternary=True)
        weights[name] = replace(source, rows=whole.own_rows if source.rows else ())
        scales = tuple(f"{n}_scale" for n in source.names)
        weights[f"{name}_scale"] = Source(scales, (1,) * len(scales) if len(scales) > 1 else (), inverse=inverse)
        if not inverse:
            others[name] = (whole,)
    return replace(part, weights=weights, alternatives=others)


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    found = {dict(n.formats).get(part, "") for b in m.module.blocks for n, part, _ in b.projections()}
    kinds = {
        "": {},
        "bitnet": {"linear_class": "autobitlinear", "quantization_mode": "online"},
        "bitnet(packed)": {"linear_class": "bitlinear"},
    }
    if len(found) > 1 or not found <= set(kinds):
        raise misfit(f"some projections are {' and some '.join(sorted(f or 'plain' for f in found))}")
    kind = kinds[found.pop()]
    fixed = {"quant_method": "bitnet", "modules_to_not_convert": ["lm_head"]}
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
        **({"quantization_config": {**fixed, **kind}} if kind else {}),
    }
