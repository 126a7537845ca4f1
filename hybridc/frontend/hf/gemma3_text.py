"""gemma3_text: gemma2 with norms on heads instead of caps, and a rope of its own for windowed layers."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, SLIDING, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of, scalar_of, types_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2304, 262208, 26)
    h, eps, bias = (
        heads(c, dim, query=8, key_value=4, head_dim=256),
        c.number("rms_norm_eps", 1e-6),
        c.flag("attention_bias", False),
    )
    window, drop = c.integer("sliding_window", 4096), dropout(c)
    every = c.integer("sliding_window_pattern", 6)
    c.ignore("_sliding_window_pattern")  # how transformers 4 saved it, beside layer_types; nothing reads it
    types = layer_types(c, depth, [SLIDING if (i + 1) % every else FULL for i in range(depth)])
    c.refuse_unless("use_bidirectional_attention", False, [False], "tokens do not see later ones")
    scalar = c.positive("query_pre_attn_scalar", 256) or 256
    c.ignore("attn_logit_softcapping")  # gemma2's: transformers does not read it here
    local, full = _ropes(c)
    act = _activation(c)
    mlp = gated_mlp(c.integer("intermediate_size", 9216), act)
    norm = call("rmsnorm", eps=eps, zero_centered=True)

    def kind(sliding: bool) -> Layer:
        attn = attention(
            h,
            dim,
            rope=local if sliding else full,
            window=window if sliding else None,
            scale=unless(scalar**-0.5, h.dim**-0.5),
            qk_norm=norm,
            bias=bias,
            out_bias=bias,
            dropout=drop,
        )
        return layer(
            "Local" if sliding else "Global",
            pipe("norm", "attn", "norm"),
            pipe("norm", "mlp", "norm"),
            parts={"attn": attn, "mlp": mlp},
            norms=(
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
            ),
        )

    return decoder(
        "gemma3_text",
        dim,
        vocab,
        [kind(t == SLIDING) for t in types],
        norm,
        tied=c.flag("tie_word_embeddings", True),
        embed={"scale": dim**0.5},
        head={"softcap": c.optional_number("final_logit_softcapping", None)},
        init=initial(c),
    )


def _activation(c: Config) -> str:
    """`hidden_activation`; the `hidden_act` of the first configs was wrong, and no code reads it."""
    c.ignore("hidden_act")
    return c.choice("hidden_activation", "gelu_pytorch_tanh", ACTIVATIONS)


def _ropes(c: Config) -> tuple[ast.Call, ast.Call]:
    """The ropes of windowed and of full layers: `rope_parameters` has one for each, older configs have fields."""
    new = c.take("rope_parameters", None, dict) or {}
    old = c.take("rope_scaling", None, dict)
    local = {"rope_theta": c.number("rope_local_base_freq", 10000.0), **(new.get(SLIDING) or {})}
    full = {"rope_theta": c.number("rope_theta", 1e6), **(new.get(FULL) or {}), **(old or {})}
    if old and "type" in old and "rope_type" not in old:
        # transformers puts it below a `rope_type` of its own, which goes before `type`, and scales nothing
        c.refuse("rope_scaling", old, "say the kind of scaling as `rope_type`")
    if set(new) - {SLIDING, FULL}:
        c.refuse("rope_parameters", new, f"give settings for {SLIDING} and {FULL}")
    made = [rope(c, theta=10000.0, max_positions=131072, given=given) for given in (local, full)]
    return made[0], made[1]


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    windowed = [a for a in m.all("attn") if a.window is not None]
    full = [a for a in m.all("attn") if a.window is None]
    ropes = {SLIDING: windowed, FULL: full}
    return {
        **ends(m),
        **heads_of(attn),
        "rope_parameters": {k: rope_of(v[0].rope)["rope_parameters"] for k, v in ropes.items() if v},
        "sliding_window": windowed[0].window if windowed else 4096,
        "layer_types": types_of(m),
        "rms_norm_eps": m.op("norm").eps,
        "attention_bias": attn.bias,
        "attention_dropout": attn.dropout,
        "query_pre_attn_scalar": scalar_of(attn.scale),
        "final_logit_softcapping": m.lm_head.softcap,
        "intermediate_size": mlp.hidden,
        "hidden_activation": activation_of(mlp),
    }
