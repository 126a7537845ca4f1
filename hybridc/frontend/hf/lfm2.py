"""lfm2: gated short convolutions in most layers, attention with norms on heads in the others (Liquid AI, 2025)."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import Layer, Names, decoder, layer
from hybridc.frontend.hf.fields import FULL, indices, initial, layer_types, sizes
from hybridc.frontend.hf.inverse import Found, ends, heads_of, rope_of
from hybridc.frontend.hf.parts import Part, attention, conv, gated_mlp, heads, suffixes
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap, same

NAMES = Names(norm="model.embedding_norm")
CONV = "conv"


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 2560, 65536, 32)
    eps = c.number("norm_eps", 1e-5)
    full = indices(c, "full_attn_idxs", depth) if c.values.get("full_attn_idxs") is not None else set(range(depth))
    c.ignore("full_attn_idxs")  # null where layer_types says it
    types = layer_types(c, depth, [FULL if i in full else CONV for i in range(depth)], (FULL, CONV))
    # older names of the width, and fields of published configs that nobody reads
    c.ignore("conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_dim", "block_norm_eps", "block_use_swiglu")
    c.ignore("block_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale", "num_heads", "use_pos_enc")
    mlp = gated_mlp(_hidden(c), at="feed_forward.", names=("w1", "w3"), down="w2")
    attn, mixer = attention_part(c, dim, eps), conv_part(c)

    def kind(name: str) -> Layer:
        mine = {"attn": attn} if name == FULL else {"conv": mixer}
        return layer(
            "Attn" if name == FULL else "Conv",
            pipe("norm", *mine),
            pipe("norm", "mlp"),
            parts={**mine, "mlp": mlp},
            norms=("operator_norm", "ffn_norm"),
        )

    return decoder(
        "lfm2",
        dim,
        vocab,
        [kind(t) for t in types],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_embedding", c.flag("tie_word_embeddings", True)),
        names=NAMES,
        init=initial(c),
    )


def _hidden(c: Config) -> int:
    """The width of the feed-forward layer, which the config may ask to be adjusted as Llama 1 adjusted it."""
    hidden: int = c.integer("block_ff_dim", c.integer("intermediate_size", 12288))
    multiple, factor = c.integer("block_multiple_of", 256), c.optional_number("block_ffn_dim_multiplier", 1.0)
    if not c.flag("block_auto_adjust_ff_dim", True):
        return hidden
    hidden = int(2 * hidden / 3)
    if factor is None:
        return hidden
    return int(multiple * -(-int(factor * hidden) // multiple))


def attention_part(c: Config, dim: int, eps: float) -> Part:
    """The attention of both LFM2 families."""
    return attention(
        heads(c, dim, key_value=8),
        dim,
        out="out_proj",
        rope=rope(c, theta=1e6, max_positions=128_000),
        qk_norm=call("rmsnorm", eps=eps),
        qk_norm_names=("q_layernorm", "k_layernorm"),
    )


def conv_part(c: Config) -> Part:
    """The short convolution of both LFM2 families."""
    bias, at = c.flag("conv_bias", False), "conv."
    made = call("short_conv", conv=unless(c.integer("conv_L_cache", 3), 3), bias=unless(bias, False))
    pairs = [(f"{n}.{s}", f"{at}{n}.{s}") for n in ("in_proj", "out_proj") for s in suffixes(bias)]
    return Part(made, {**same(*pairs), **conv(at + "conv", bias=bias)})


def mixers_of(m: Found) -> dict[str, Any]:
    """The fields of attention and convolution of both LFM2 families."""
    attn, mixer = m.maybe("attn"), m.maybe("conv")
    fields = {**heads_of(attn), **rope_of(attn.rope)} if attn is not None else {}
    if mixer is not None:
        fields |= {"conv_L_cache": mixer.conv, "conv_bias": mixer.bias}
    fields["layer_types"] = [FULL if a else CONV for a in m.layers_with("attn")]
    return {**fields, "norm_eps": m.op("norm").eps}


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    return {
        **ends(m),
        **mixers_of(m),
        "intermediate_size": m.op("mlp").hidden,
        "block_auto_adjust_ff_dim": False,
    }
