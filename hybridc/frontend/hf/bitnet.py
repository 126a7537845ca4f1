"""bitnet: llama with squared ReLU and norms in front of the last projections; ternary when its config says so."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, misfit, rope_of
from hybridc.frontend.hf.parts import Part, attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap, same


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
    mlp = Part(mlp.call, {**mlp.weights, **same(("down_norm.weight", "mlp.ffn_sub_norm.weight"))})
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
        precision=_precision(c),
    )


def _precision(c: Config) -> ast.Precision | None:
    """`bitnet on layers.**` where the projections are quantized online, from weights that are not."""
    given = c.take("quantization_config", None, dict)
    if given is None:
        return None
    settings = Config(given, c.family, within="quantization_config")
    settings.sink = c.sink
    settings.choice("quant_method", "bitnet", {"bitnet": "bitnet"})
    why = "weights that are ternary or packed in the file are not read: take the master weights"
    settings.refuse_unless("linear_class", "bitlinear", ["autobitlinear"], why)
    settings.refuse_unless("quantization_mode", "offline", ["online"], why)
    settings.refuse_unless(
        "modules_to_not_convert", ["lm_head"], [["lm_head"]], "all projections but the head are ternary"
    )
    settings.refuse_unless("use_rms_norm", False, [False], "the norms are those of the family")
    settings.ignore("rms_norm_eps")  # of use_rms_norm
    settings.report_unknown()
    everywhere = ast.Selector((ast.Step("layers"), ast.Step("**")))
    return ast.Precision((ast.Rule(ast.Name("bitnet"), (everywhere,)),))


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    ternary = {bool(n.formats) for b in m.module.blocks for n in b.nodes if n.path in ("attn", "mlp")}
    if len(ternary) > 1:
        raise misfit("some projections are ternary and some are not")
    quantized = {
        "quantization_config": {
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": "online",
            "modules_to_not_convert": ["lm_head"],
        }
    }
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
        **(quantized if ternary == {True} else {}),
    }
