"""bamba: Mamba-2 layers and a few attention layers that rotate half of each head, all with a gated mlp."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import Layer, Names, decoder, layer
from hybridc.frontend.hf.fields import dropout, indices, initial, sizes
from hybridc.frontend.hf.inverse import Found, ends, heads_of, rope_of
from hybridc.frontend.hf.mambas import SIDE_FIELDS, side_mixer, side_mixer_of
from hybridc.frontend.hf.parts import attention, gated_mlp, heads
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import WeightMap

_NAMES = Names(norm="model.final_layernorm")


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab, depth = sizes(c, 4096, 128000, 32)
    c.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"})
    c.refuse_unless("z_loss_coefficient", 0.0, [0, 0.0], "a loss on the size of the logits")
    eps, bias = c.number("rms_norm_eps", 1e-5), c.flag("attention_bias", False)
    h = heads(c, dim, key_value=8)
    # the library takes a half whatever stands there, unless rope_parameters say otherwise
    c.values.pop("partial_rotary_factor", None)
    positions = rope(c, theta=10000.0, max_positions=262144, partial=0.5, may_be_partial=True)
    c.refuse_unless("attn_rotary_emb", h.dim // 2, [h.dim // 2], "half of each head rotates")
    attn = attention(h, dim, rope=positions, bias=bias, out_bias=bias, dropout=dropout(c))
    mlp = gated_mlp(c.integer("intermediate_size", 14336), at="feed_forward.", bias=c.flag("mlp_bias", False))
    attends = indices(c, "attn_layer_indices", depth)
    c.ignore(*SIDE_FIELDS)
    mixer = attn if len(attends) == depth else side_mixer(c, dim, eps)

    def kind(attends: bool) -> Layer:
        label = "attn" if attends else "ssm"
        return layer(
            "Attention" if attends else "Mamba",
            pipe("norm", label),
            pipe("norm", "mlp"),
            parts={label: attn if attends else mixer, "mlp": mlp},
            norms=("input_layernorm", "pre_ff_layernorm"),
        )

    return decoder(
        "bamba",
        dim,
        vocab,
        [kind(i in attends) for i in range(depth)],
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", False),
        names=_NAMES,
        init=initial(c),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    attn, ssm, mlp = m.maybe("attn"), m.maybe("ssm"), m.op("mlp")
    fields: dict[str, Any] = {**ends(m), "rms_norm_eps": m.op("norm").eps}
    if attn is not None:
        fields |= {**heads_of(attn), **rope_of(attn.rope, partial=True)}
        fields |= {"attention_bias": attn.bias, "attention_dropout": attn.dropout}
    if ssm is not None:
        fields |= side_mixer_of(ssm, m.embedding.dim)
    return {
        **fields,
        "attn_layer_indices": [i for i, flag in enumerate(m.layers_with("attn")) if flag],
        "intermediate_size": mlp.hidden,
        "mlp_bias": mlp.bias,
    }
