"""starcoder2: layer norms, a feed-forward layer without a gate, biases everywhere."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import attention, heads, plain_mlp
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 3072, 49152, 30)
    bias, drop = c.flag("use_bias", True), c.share("residual_dropout", 0.0)
    attn = attention(
        heads(c, dim, query=24, key_value=2),
        dim,
        rope=rope(c, theta=10000.0, max_positions=4096),
        window=c.integer("sliding_window", None),
        bias=bias,
        out_bias=bias,
        dropout=dropout(c),
    )
    act = c.choice("hidden_act", "gelu_pytorch_tanh", ACTIVATIONS)
    mlp = plain_mlp(c.integer("intermediate_size", 12288), act, up="c_fc", down="c_proj", bias=bias)
    first = c.share("embedding_dropout", 0.0)
    # in published configs: what the family always does
    c.refuse_unless("mlp_type", "default", ["default"], "the feed-forward layer has no gate")
    c.refuse_unless("norm_type", "layer_norm", ["layer_norm"], "the norms are layer norms")
    behind = call("dropout", drop) if drop else None
    kind = layer(
        "Layer",
        pipe("norm", "attn", behind),
        pipe("norm", "mlp", behind),
        parts={"attn": attn, "mlp": mlp},
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    return decoder(
        "starcoder2",
        dim,
        vocab,
        [kind] * depth,
        call("layernorm", eps=c.number("norm_epsilon", 1e-5)),
        behind_embed=call("dropout", first) if first else None,
        tied=c.flag("tie_word_embeddings", True),
        init=initial(c, 0.018042),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    behind_embed = m.module.embed.nodes[-1].op
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        "sliding_window": attn.window,
        "norm_epsilon": m.op("norm").eps,
        "use_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "embedding_dropout": getattr(behind_embed, "p", 0.0),
        "residual_dropout": m.op("dropout").p if m.has("dropout") else 0.0,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
    }
