"""Metadata of a GGUF file of the llama architecture as the config of a public checkpoint.

Which entries there are and what they do is told by the format's description (ggml's `docs/gguf.md`) and by what
llama.cpp reads for this architecture. Each is honoured, known to change no number, or refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.frontend.gguf.file import GgufFile, open_gguf, shown
from hybridc.frontend.gguf.rope import rope_settings, short
from hybridc.frontend.hf.config import Config

ARCHITECTURES = ("llama",)

MAX_EXPERTS = 1 << 17
"""Experts of all layers together: they are listed one by one."""

ROPE_FREQS = "rope_freqs.weight"

_FIXED: tuple[tuple[str, Any, tuple[Any, ...], str], ...] = (
    ("attention.causal", True, (True,), "a token sees those before it"),
    ("attention.scale", 0.0, (0.0,), "scores are divided by the root of the head's size"),
    ("attention.clamp_kqv", 0.0, (0.0,), "keys, queries and values are not clamped"),
    ("attention.max_alibi_bias", 0.0, (0.0,), "positions are rotary"),
    ("attn_logit_softcapping", 0.0, (0.0,), "scores have no cap"),
    ("final_logit_softcapping", 0.0, (0.0,), "logits have no cap"),
    ("embedding_scale", 1.0, (1.0, 0.0), "embeddings are not scaled"),
    ("residual_scale", 1.0, (1.0, 0.0), "residuals are not scaled"),
    ("logit_scale", 1.0, (1.0, 0.0), "logits are not scaled"),
    ("use_parallel_residual", False, (False,), "attention comes before the feed-forward part"),
    ("pooling_type", 0, (0,), "an embedding model has no next token"),
    ("leading_dense_block_count", 0, (0,), "all layers are alike"),
    ("expert_shared_count", 0, (0,), "there are no shared experts"),
    ("expert_shared_feed_forward_length", 0, (0,), "there are no shared experts"),
    ("expert_group_count", 0, (0, 1), "experts are chosen one by one"),
    ("expert_gating_func", 1, (0, 1), "the router takes a softmax"),
    ("expert_weights_norm", True, (True,), "the weights of the chosen experts sum to 1"),
    ("expert_weights_scale", 1.0, (0.0, 1.0), "the weights of the chosen experts sum to 1"),
)
"""Entries without an effect at some values: name, value where absent, those values, what holds then."""

_NO_EFFECT = ("tensor_data_layout",)
"""`tensor_data_layout` says where the weights came from; files of both values are laid out alike."""


def config_of(gguf: GgufFile) -> dict[str, Any]:
    """The config. Raises DiagnosticError with everything in the metadata that cannot be honoured (HYB5xx)."""
    arch = architecture(gguf.metadata)
    c = Config(_numbers(gguf.metadata, arch), arch)

    def key(name: str) -> str:
        return f"{arch}.{name}"

    for name, default, allowed, why in _FIXED:
        c.refuse_unless(key(name), default, allowed, why)
    c.ignore(*map(key, _NO_EFFECT))
    rows = gguf.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in gguf.tensors else None
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    listed = len(tokens) if isinstance(tokens, list) and tokens else rows
    dim, depth = _required(c, key("embedding_length")), _required(c, key("block_count"))
    heads, positions = _required(c, key("attention.head_count")), _required(c, key("context_length"))
    hidden = _required(c, key("feed_forward_length"))
    kv_heads = c.integer(key("attention.head_count_kv"), heads)
    head_dim = c.integer(key("attention.key_length"), max(dim // heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        c.refuse_unless(
            key(name), head_dim, [head_dim], f"keys, values and rotary pairs have {head_dim} channels a head"
        )
    window = c.take(key("attention.sliding_window"), 0, int)
    if 0 < window < positions:
        c.refuse(key("attention.sliding_window"), window, "attention of this architecture has no window")
    experts = c.take(key("expert_count"), 0, int, low=0, high=10_000)
    c.refuse_unless(
        key("expert_feed_forward_length"), hidden, [hidden, 0], "experts have `feed_forward_length` channels"
    )
    if depth * experts > MAX_EXPERTS:
        c.refuse(key("expert_count"), experts, f"{depth} layers have {MAX_EXPERTS} experts at most")
    config: dict[str, Any] = {
        "architectures": ["MixtralForCausalLM" if experts else "LlamaForCausalLM"],
        "model_type": "mixtral" if experts else "llama",
        "vocab_size": c.integer(key("vocab_size"), listed),
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": short(_epsilon(c, key("attention.layer_norm_rms_epsilon"))),
        "max_position_embeddings": positions,
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        **rope_settings(c, arch, head_dim, _divisors(gguf)),
    }
    used = c.integer(key("expert_used_count"), 2) if experts else c.take(key("expert_used_count"), 0, int)
    if experts:
        config |= {"num_local_experts": experts, "num_experts_per_tok": used, "sliding_window": None}
    else:
        config["attention_bias"] = any(n.startswith("blk.0.attn_") and n.endswith(".bias") for n in gguf.tensors)
        config["mlp_bias"] = any(n.startswith("blk.0.ffn_") and n.endswith(".bias") for n in gguf.tensors)
    if config["vocab_size"] is None:
        c.refuse(key("vocab_size"), None, "the file has neither tokens nor an embedding")
    c.done()
    for name in ("bos", "eos"):
        config[f"{name}_token_id"] = token_id(gguf.metadata, name)
    return config


def architecture(metadata: Mapping[str, Any]) -> str:
    """The architecture. Raises DiagnosticError (HYB501, HYB521) for another one, or what is no model of its own."""
    arch, kind = metadata.get("general.architecture"), metadata.get("general.type", "model")
    if arch not in ARCHITECTURES:
        label = f"the file's architecture is {shown(arch)}"
        help = f"files of the architecture {', '.join(ARCHITECTURES)} are read; import others from the published folder"
        raise DiagnosticError([Diagnostic("HYB501", NO_SPAN, label, help)])
    if kind != "model":
        label = f"the file is of the type {shown(kind)}"
        raise DiagnosticError([Diagnostic("HYB503", NO_SPAN, label, "name the file of the model itself")])
    parts = metadata.get("split.count", 0)
    if parts not in (0, 1):
        label = f"the file is one of {shown(parts)} parts"
        raise DiagnosticError([Diagnostic("HYB503", NO_SPAN, label, "put them together: llama-gguf-split --merge")])
    return str(arch)


def token_id(metadata: Mapping[str, Any], name: str) -> int | None:
    """A special token's id: bos, eos, unknown or padding; None where the file names none of its vocabulary."""
    value = metadata.get(f"tokenizer.ggml.{name}_token_id")
    tokens = metadata.get("tokenizer.ggml.tokens")
    known = len(tokens) if isinstance(tokens, list) else 1 << 31
    return value if type(value) is int and 0 <= value < known else None


def _numbers(metadata: Mapping[str, Any], arch: str) -> dict[str, Any]:
    """The architecture's entries; a list with one number for each layer, all the same, is that number."""
    own = {k: v for k, v in metadata.items() if k.startswith(arch + ".")}
    return {k: v[0] if isinstance(v, list) and v and v.count(v[0]) == len(v) else v for k, v in own.items()}


def _required(c: Config, name: str) -> int:
    if c.values.get(name) is None:
        c.refuse(name, None, "every file of this architecture has it")
    return int(c.integer(name, 1))


def _epsilon(c: Config, name: str) -> float:
    value = c.positive(name, None)
    if value is None:
        c.refuse(name, c.values.get(name), "every file of this architecture has it")
    return value or 1.0


def _divisors(gguf: GgufFile) -> tuple[float, ...] | None:
    """The divisors of rotary frequencies, where the file has some."""
    info = gguf.tensors.get(ROPE_FREQS)
    if info is None:
        return None
    if info.kind != "F32" or len(info.shape) != 1 or info.size > 1 << 16:
        label = f"`{ROPE_FREQS}` is {info.kind} {list(info.shape)}"
        raise DiagnosticError([Diagnostic("HYB511", NO_SPAN, label, "it holds one F32 number for each rotary pair")])
    with open_gguf(gguf.path) as file:
        file.seek(info.offset)
        data = file.read(info.size)
    return struct.unpack(f"<{info.shape[0]}f", data.ljust(info.size, b"\0"))
