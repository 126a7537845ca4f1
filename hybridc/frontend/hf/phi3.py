"""phi3: llama with fused projections, a part of each head rotated, and dropouts on the residual sublayers."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import dropout, initial, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 3072, 32064, 32)
    c.values.setdefault("original_max_position_embeddings", 4096)  # the class has it, and it goes before the rope's own
    attn = attention(
        heads(c, dim),
        dim,
        names=("qkv_proj",),
        fused=True,
        rope=rope(c, theta=10000.0, max_positions=4096, may_be_partial=True),
        window=c.integer("sliding_window", None),
        dropout=dropout(c),
    )
    c.ignore("original_max_position_embeddings")  # the rope reads it, where it needs it
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):  # the last two stand in Phi-4-mini's config
        c.refuse_unless(name, False, [False], "the projections have no biases")
    for name in ("full_attn_mod", "interpolate_factor"):
        c.refuse_unless(name, 1, [1], "no code of the family does anything else")
    mlp = gated_mlp(
        c.integer("intermediate_size", 8192),
        c.choice("hidden_act", "silu", ACTIVATIONS),
        names=("gate_up_proj",),
        fused=True,
    )
    drop = c.share("resid_pdrop", 0.0)
    behind = call("dropout", drop) if drop else None
    c.ignore("embd_pdrop")  # transformers' module has none on the embedding
    kind = layer(
        "Layer",
        pipe("norm", "attn", behind),
        pipe("norm", "mlp", behind),
        parts={"attn": attn, "mlp": mlp},
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    return decoder(
        "phi3",
        dim,
        vocab,
        [kind] * depth,
        call("rmsnorm", eps=c.number("rms_norm_eps", 1e-5)),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope, partial=True),
        "sliding_window": attn.window,
        "rms_norm_eps": m.op("norm").eps,
        "attention_dropout": attn.dropout,
        "resid_pdrop": m.op("dropout").p if m.has("dropout") else 0.0,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
    }
