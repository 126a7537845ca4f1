"""exaone4: norms behind the sublayers and on each head; with windows, the full layers do not rotate."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, decoder, layer
from hybridc.frontend.hf.fields import FULL, SLIDING, dropout, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, activation_of, ends, heads_of, rope_of, types_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 102400, 32)
    h, eps = heads(c, dim, key_value=32), c.number("rms_norm_eps", 1e-5)
    positions, drop = rope(c, theta=10000.0, max_positions=2048), dropout(c)
    window, types = c.optional("sliding_window", 4096), _types(c, depth)
    mlp = gated_mlp(c.integer("intermediate_size", 16384), c.choice("hidden_act", "silu", ACTIVATIONS))

    def kind(sliding: bool) -> Layer:
        local = sliding and window is not None
        attn = attention(
            h,
            dim,
            rope=positions if local or window is None else None,
            window=window if local else None,
            qk_norm=call("rmsnorm", eps=eps),
            dropout=drop,
        )
        return layer(
            "Local" if local else "Layer" if window is None else "Global",
            pipe("attn", "norm"),
            pipe("mlp", "norm"),
            parts={"attn": attn, "mlp": mlp},
            norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        )

    return decoder(
        "exaone4",
        dim,
        vocab,
        [kind(t == SLIDING) for t in types],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        init=initial(c),
    )


def _types(c: Config, depth: int) -> list[str]:
    """The kind of each layer. Published configs spell the pattern as `LLLG`, or count to the full layer."""
    pattern = c.take("sliding_window_pattern", 4, (int, str))
    if isinstance(pattern, str):
        known = bool(pattern) and set(pattern) <= {"L", "G"}
        if not known:
            c.refuse("sliding_window_pattern", pattern, "write L for windowed and G for full layers")
            pattern = "L"
        default = [FULL if pattern[i % len(pattern)] == "G" else SLIDING for i in range(depth)]
    else:
        default = [SLIDING if pattern and (i + 1) % pattern else FULL for i in range(depth)]
    return layer_types(c, depth, default)


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, mlp = m.op("attn"), m.op("mlp")
    turned = [a for a in m.all("attn") if a.rope is not None]
    windows = [a.window for a in turned if a.window is not None]
    return {
        **ends(m),
        **heads_of(attn),
        **(rope_of(turned[0].rope) if turned else {}),
        # full layers have no positions in a model that has a window, even where none of its layers uses it
        "sliding_window": windows[0] if windows else None if turned else 4096,
        "layer_types": types_of(m),
        "rms_norm_eps": m.op("norm").eps,
        "attention_dropout": attn.dropout,
        "intermediate_size": mlp.hidden,
        "hidden_act": activation_of(mlp),
    }
