"""zamba2: Mamba-2 layers, some of which read a transformer block whose weights they share (Glorioso et al., 2024)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.decoder import Layer, Names, decoder, layer
from hybridc.frontend.hf.fields import dropout, initial
from hybridc.frontend.hf.inverse import Found, activation_of, ends, rope_of
from hybridc.frontend.hf.mambas import LAYER_TYPES
from hybridc.frontend.hf.parts import Heads, Part, attention, gated_mlp, mamba2
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Source, WeightMap, same

_NAMES = Names(norm="model.final_layernorm")
_SHARED = "shared_transformer."
_NUMBER = ".*."
"""In names of adapters: the number of their layer among the hybrid ones, which is filled in last."""


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab = c.integer("hidden_size", 2560), c.integer("vocab_size", 32000)
    eps, bias = c.number("rms_norm_eps", 1e-5), c.flag("add_bias_linear", False)
    types = _types(c)
    if len(types) != c.integer("num_hidden_layers", 54):
        c.refuse("num_hidden_layers", c.values.get("num_hidden_layers"), f"layers_block_type names {len(types)} layers")
    hybrids = [i for i, t in enumerate(types) if t == "hybrid"]
    # what follows from other fields, and what this family's mixers do not look at
    c.ignore("kv_channels", "num_query_groups", "use_conv_bias", "use_mem_eff_path")
    c.ignore("time_step_limit", "mamba_headdim", "layers_block_type", "layer_types")
    c.refuse_unless("hybrid_layer_ids", hybrids, [hybrids], "layers_block_type says which layers are hybrid")
    tied, blocks = c.flag("tie_word_embeddings", True), c.integer("num_mem_blocks", 1)
    # where the library ties no head, it ties no blocks either
    sets = min(blocks if tied else len(hybrids), len(hybrids)) or 1
    kind = _hybrid(c, dim, bias, sets)
    mixer = _mixer(c, dim, bias)
    plain = layer("Mamba", pipe("norm", "ssm"), parts={"ssm": mixer}, norms=("input_layernorm",))
    below = {k: s.below("mamba_decoder.") for k, s in mixer.weights.items()}
    kind = replace(kind, parts={**kind.parts, "ssm": Part(mixer.call, below)})
    spec, weights = decoder(
        "zamba2",
        dim,
        vocab,
        [kind if t == "hybrid" else plain for t in types],
        call("rmsnorm", eps=eps),
        tied=tied,
        names=_NAMES,
        init=initial(c),
        ignored=_copies(hybrids, blocks, sets),
    )
    sources = dict(weights.sources)
    for n, i in enumerate(hybrids):
        at = f"model.layers.{hybrids[n % sets]}.{_SHARED}"
        for name, source in sources.items():
            if name.startswith(f"layers.{i}.") and ".adapter." in name:
                names = (t.removeprefix(f"model.layers.{i}.").replace(_NUMBER, f".{n}.") for t in source.names)
                sources[name] = replace(source, names=tuple(at + t for t in names))
    return spec, replace(weights, sources=sources)


def _types(c: Config) -> list[str]:
    name = "layer_types" if "layer_types" in c.values else "layers_block_type"
    given = c.words(name, {**LAYER_TYPES, "hybrid": "hybrid"})
    if given is not None and "full_attention" in given:
        c.refuse(name, "full_attention", "layers of this family are linear_attention or hybrid")
    if given:
        return given
    plain = ["linear_attention"]
    unit = [*plain * 5, "hybrid"]
    return [*plain, *unit * 7, *plain * 4, "hybrid", *plain * 3, "hybrid", *plain * 2]


def _hybrid(c: Config, dim: int, bias: bool, sets: int) -> Layer:
    """A Mamba-2 layer that also reads what a shared transformer block makes of the stream and the embedding."""
    queries = c.integer("num_attention_heads", 32)
    h = Heads(
        queries,
        c.integer("num_key_value_heads", queries),
        c.integer("attention_head_dim", max(1, 2 * dim // queries)),
    )
    c.refuse_unless("attention_hidden_size", 2 * dim, [2 * dim], "attention reads the stream beside the embedding")
    if c.flag("use_long_context", False):
        c.values["max_position_embeddings"] = 16384
    positions = rope(c, theta=10000.0, max_positions=4096)
    rank = c.integer("adapter_rank", 128)
    adapter = call("lora", rank=rank)
    adapted = c.flag("use_shared_attention_adapter", False)
    attn = attention(
        h,
        2 * dim,
        at=_SHARED + "self_attn.",
        rope=positions if c.flag("use_mem_rope", False) else None,
        scale=(h.dim / 2) ** -0.5,
        out_dim="dim",
        dropout=dropout(c),
        adapter=adapter if adapted else None,
    )
    act = c.choice("hidden_act", "gelu", ACTIVATIONS)
    mlp = gated_mlp(
        c.integer("intermediate_size", 4 * dim),
        act,
        at=_SHARED + "feed_forward.",
        names=("gate_up_proj",),
        fused=True,
        bias=bias,
        adapter=adapter,
    )
    attn_adapter = _adapter(rank, *(f"self_attn.linear_{n}_adapter_list" for n in "qkv"))
    mlp_adapter = _adapter(rank, "feed_forward.gate_up_proj_adapter_list")
    side = pipe(call("concat", "x", "x0"), "norm", "attn", "norm", "mlp", call("own", call("linear", "dim")))
    return layer(
        "Hybrid",
        ast.Statement("side", "=", side),
        pipe(ast.Binary("+", ast.Name("x"), ast.Name("side")), call("own", "norm"), call("own", "ssm")),
        parts={
            "attn": Part(attn.call, {**attn.weights, **(attn_adapter if adapted else {})}),
            "mlp": Part(mlp.call, {**mlp.weights, **mlp_adapter}),
        },
        norms=(_SHARED + "input_layernorm", _SHARED + "pre_ff_layernorm", "mamba_decoder.input_layernorm"),
        weights=same(("linear.weight", "linear.weight")),
        shared=sets,
    )


def _copies(hybrids: list[int], blocks: int, sets: int) -> tuple[str, ...]:
    """What a file may hold and nothing reads: copies of what an earlier layer has, adapters of layers with other
    weights."""
    copies = [f"model.layers.{i}.{_SHARED}*" for i in hybrids[sets:]]
    lists = ("feed_forward.gate_up_proj", *(f"self_attn.linear_{n}" for n in "qkv"))
    others = [
        f"model.layers.{i}.{_SHARED}{name}_adapter_list.{k}.*"
        for n, i in enumerate(hybrids[:sets])
        for k in range(n % blocks, len(hybrids), blocks)
        if k % sets != n
        for name in lists
    ]
    return (*copies, *others)


def _adapter(rank: int, *lists: str) -> dict[str, Source]:
    """Where an adapter's weights stand in lists of all hybrid layers' adapters, one for each part of a projection."""
    down = Source(tuple(f"{name}{_NUMBER}0.weight" for name in lists), (rank,) * len(lists))
    ups = same(*((f"adapter.up.{n}.weight", f"{name}{_NUMBER}1.weight") for n, name in enumerate(lists)))
    return {"adapter.down.weight": down, **ups}


def _mixer(c: Config, dim: int, bias: bool) -> Part:
    heads, groups, low = c.integer("n_mamba_heads", 8), c.integer("mamba_ngroups", 1), c.number("time_step_min", 0.001)
    head_dim, rest = divmod(c.integer("mamba_expand", 2) * dim, heads)
    if rest:
        c.refuse("n_mamba_heads", heads, "use a divisor of mamba_expand x hidden_size")
    return mamba2(
        "mamba.",
        heads=heads,
        head_dim=unless(max(1, head_dim), 64),
        state=unless(c.integer("mamba_d_state", 64), 128),
        groups=unless(groups, 1),
        conv=unless(c.integer("mamba_d_conv", 4), 4),
        chunk=unless(c.integer("chunk_size", 256), 256),
        proj_bias=unless(bias, False),
        out_bias=unless(bias, False),
        # where steps start is where they end as well
        dt_limit=(low, math.inf),
        norm=call("gated_rmsnorm", groups=unless(groups, 1)),
        dt_min=unless(low, 0.001),
        dt_max=unless(c.number("time_step_max", 0.1), 0.1),
        dt_floor=unless(c.number("time_step_floor", 1e-4), 1e-4),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    ssm, attn, mlp = m.op("ssm"), m.maybe("attn"), m.maybe("mlp")
    fields = {
        **ends(m),
        "rms_norm_eps": m.op("norm").eps,
        "layers_block_type": ["hybrid" if flag else "linear_attention" for flag in m.layers_with("attn")],
        "add_bias_linear": ssm.proj_bias,
        "n_mamba_heads": ssm.heads,
        "mamba_ngroups": ssm.groups,
        "mamba_expand": ssm.heads * ssm.head_dim // m.embedding.dim,
        "mamba_d_state": ssm.state,
        "mamba_d_conv": ssm.conv,
        "chunk_size": ssm.chunk,
        "time_step_min": ssm.dt_limit[0],
        "time_step_max": ssm.dt_max,
        "time_step_floor": ssm.dt_floor,
    }
    if attn is not None:
        fields |= {
            "num_mem_blocks": len({layer.weights for layer in m.module.layers if layer.weights}),
            "num_attention_heads": attn.heads,
            "num_key_value_heads": attn.kv_heads,
            "attention_head_dim": attn.head_dim,
            "attention_dropout": attn.dropout,
            "use_mem_rope": attn.rope is not None,
            "use_shared_attention_adapter": attn.adapter is not None,
            **(rope_of(attn.rope) if attn.rope is not None else {}),
            "intermediate_size": mlp.hidden,
            "hidden_act": activation_of(mlp),
            "adapter_rank": mlp.adapter.rank,
        }
    return fields
