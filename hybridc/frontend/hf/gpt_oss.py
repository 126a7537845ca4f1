"""gpt_oss: sinks, every other layer windowed, yarn, and experts of clamped swiglu with biases."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, SLIDING, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, aux_of, ends, heads_of, rope_of, types_of
from hybridc.frontend.hf.parts import Part, attention, aux_loss, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Grouped, Source, WeightMap, same


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2880, 201088, 36)
    h, bias, drop = heads(c, dim, query=64, key_value=8, head_dim=64), c.flag("attention_bias", True), dropout(c)
    positions = rope(c, theta=150000.0, max_positions=131072, default=_YARN)
    window = c.optional("sliding_window", 128)
    types = layer_types(c, depth, [SLIDING if (i + 1) % 2 else FULL for i in range(depth)])
    c.choice("hidden_act", "silu", {"silu": "silu"})
    # in published configs: what the family always does, or a name that transformers has replaced
    c.ignore("initial_context_length", "swiglu_beta", "experts_per_token")
    experts = _experts(c)

    def kind(sliding: bool) -> Layer:
        attn = attention(
            h,
            dim,
            rope=positions,
            window=window if sliding else None,
            sinks=True,
            bias=bias,
            out_bias=bias,
            dropout=drop,
        )
        return layer(
            "Local" if sliding else "Global",
            pipe("norm", "attn"),
            pipe("norm", "moe"),
            parts={"attn": attn, "moe": experts},
            norms=("input_layernorm", "post_attention_layernorm"),
        )

    return decoder(
        "gpt_oss",
        dim,
        vocab,
        [kind(t == SLIDING and window is not None) for t in types],
        call("rmsnorm", eps=c.number("rms_norm_eps", 1e-5)),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )


_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""The rope of a config that says nothing."""


def _experts(c: Config) -> Part:
    """The experts, whose tensors hold all of a layer, gate and up rows in turn, and are used from the right."""
    experts, hidden = (
        c.integer("num_local_experts", c.integer("num_experts", 128)),
        c.integer("intermediate_size", 2880),
    )
    alpha, limit = c.positive("swiglu_alpha", 1.702), c.positive("swiglu_limit", 7.0)
    made = call(
        "moe",
        experts=experts,
        hidden=hidden,
        top_k=c.integer("num_experts_per_tok", 4),
        router_bias=True,
        bias=True,
        beta=unless(alpha, 1.0),
        limit=limit,
        up_offset=1.0,
        aux_coef=aux_loss(c, 0.001),
    )
    turns = (Grouped(hidden, (1, 1), dim=1),)
    return Part(
        made,
        {
            **same(("router.weight", "mlp.router.weight"), ("router.bias", "mlp.router.bias")),
            "experts.gate_up": Source(("mlp.experts.gate_up_proj",), transpose=True, grouped=turns),
            "experts.gate_up_bias": Source(("mlp.experts.gate_up_proj_bias",), grouped=turns),
            "experts.down": Source(("mlp.experts.down_proj",), transpose=True),
            "experts.down_bias": Source(("mlp.experts.down_proj_bias",)),
        },
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, experts = m.op("attn"), m.op("moe")
    windows = [a.window for a in m.all("attn") if a.window is not None]
    return {
        **ends(m),
        **heads_of(attn),
        **rope_of(attn.rope),
        **aux_of(experts),
        "sliding_window": windows[0] if windows else None,
        "layer_types": types_of(m),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "num_local_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "intermediate_size": experts.hidden,
        "swiglu_alpha": experts.beta,
        "swiglu_limit": experts.limit,
    }
