"""Small GGUF files for tests: written with the package `gguf`, and by hand where it cannot write what a test needs."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

SIZES: dict[str, Any] = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
)

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.down_proj": "ffn_down_exps",
}
"""Published names, and those of the file for the same tensors (ggml's `docs/gguf.md`)."""


def model(**settings: Any) -> Any:
    """A small model of transformers with random weights, fp32."""
    torch.manual_seed(0)
    moe = "num_local_experts" in settings
    config = (MixtralConfig if moe else LlamaConfig)(**(SIZES | settings))
    theirs = (MixtralForCausalLM if moe else LlamaForCausalLM)(config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.normal_(mean=1.0 if "norm" in name else 0.0, std=0.2)
    return theirs


def interleaved(value: np.ndarray, heads: int) -> np.ndarray:
    """Rows as the file has them: of each head, row 2i + s is what the published layout has in row s * half + i."""
    size = value.shape[0] // heads
    order = [h * size + s * (size // 2) + i for h in range(heads) for i in range(size // 2) for s in (0, 1)]
    return value[order]


def write(path: Path, theirs: Any, kind: Kind = Kind.F32, **more: Any) -> None:
    """Writes transformers' model as a file and gives the model the weights that the file then has.

    Matrices are in format `kind`; `more` are further metadata, in place of the usual ones where named as these are
    left out where None. A value that is a numpy array is a tensor instead.
    """
    config, state = theirs.config, theirs.state_dict()
    writer = GGUFWriter(path, "llama")
    entries: dict[str, Any] = {
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.block_count": config.num_hidden_layers,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "llama.vocab_size": config.vocab_size,
    }
    if hasattr(config, "num_local_experts"):
        entries |= {
            "llama.expert_count": config.num_local_experts,
            "llama.expert_used_count": config.num_experts_per_tok,
        }
    for key, value in (entries | more).items():
        if isinstance(value, np.ndarray):
            writer.add_tensor(key, value)
        elif value is not None:
            add(writer, key, value)
    with torch.no_grad():
        for name, tensor in state.items():
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            for own, value, put in _own(name, tensor, config):
                stored = value if value.ndim == 1 else _quantized(value, kind)
                if value.ndim == 1:
                    writer.add_tensor(own, np.ascontiguousarray(value))
                else:
                    writer.add_tensor(own, np.ascontiguousarray(stored), raw_dtype=kind)
                    put.copy_(torch.from_numpy(_inverse(gguf.quants.dequantize(stored, kind), own, config)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    theirs.load_state_dict(state)


def add(writer: GGUFWriter, key: str, value: Any) -> None:
    kind = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    if isinstance(value, (list, tuple)):
        writer.add_array(key, value)
    elif key == "general.alignment":  # the writer lays tensors out by it
        writer.add_custom_alignment(value)
    else:
        kind[type(value)](key, value)


def _own(name: str, tensor: torch.Tensor, config: Any) -> Any:
    """(name in the file, numbers, the part of the tensor that they are)."""
    stem, _, end = name.rpartition(".")
    layer, inner = "", stem
    if stem.startswith("model.layers."):
        _, _, number, inner = stem.split(".", 3)
        layer = f"blk.{number}."
    if name.endswith("mlp.experts.gate_up_proj"):
        half = tensor.shape[1] // 2
        yield layer + "ffn_gate_exps.weight", tensor[:, :half].numpy(), tensor[:, :half]
        yield layer + "ffn_up_exps.weight", tensor[:, half:].numpy(), tensor[:, half:]
        return
    if name.endswith("mlp.experts.down_proj"):
        inner, end = "mlp.experts.down_proj", "weight"
    own = f"{layer}{NAMES[inner]}.{end}"
    heads = _heads(own, config)
    yield own, interleaved(tensor.numpy(), heads) if heads else tensor.numpy(), tensor


def _heads(own: str, config: Any) -> int:
    if ".attn_q." in own:
        return int(config.num_attention_heads)
    return int(config.num_key_value_heads) if ".attn_k." in own else 0


def _inverse(value: np.ndarray, own: str, config: Any) -> np.ndarray:
    heads = _heads(own, config)
    if not heads:
        return value
    order = interleaved(np.arange(value.shape[0]), heads)
    out = np.empty_like(value)
    out[order] = value
    return out


def _quantized(value: np.ndarray, kind: Kind) -> np.ndarray:
    try:
        return gguf.quants.quantize(value.astype(np.float32), kind)
    except NotImplementedError:
        return blocks(value.shape, kind)


def blocks(shape: tuple[int, ...], kind: Kind) -> np.ndarray:
    """Random bytes of a format that the package does not write; what stands for fp16 numbers is made small."""
    size, width = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(sum(shape))
    count = int(np.prod(shape)) // size
    data = rng.integers(0, 256, (count, width), dtype=np.uint8)
    for at in {Kind.Q2_K: (80, 82), Kind.Q3_K: (108,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,)}[kind]:
        data[:, at : at + 2] = np.frombuffer(struct.pack("<e", 2e-4), dtype=np.uint8)
    return data.reshape(*shape[:-1], shape[-1] // size * width)
