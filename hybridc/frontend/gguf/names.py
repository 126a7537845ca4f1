"""Where each tensor of the public layout stands in a GGUF file, and how it lies there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hybridc.frontend.gguf.config import ROPE_FREQS
from hybridc.frontend.gguf.file import GgufFile


@dataclass(frozen=True)
class Piece:
    """A public tensor's place: the file's tensor, its public shape, and what differs.

    `heads` says that rows of that many heads have their rotary pairs side by side, where the public layout has them
    half a head apart; `expert` picks one of a stack [experts, ...].
    """

    tensor: str
    shape: tuple[int, ...]
    heads: int = 0
    expert: int | None = None


def pieces(config: dict[str, Any], gguf: GgufFile) -> dict[str, Piece]:
    """Each tensor of the public checkpoint with that config."""
    dim, vocab = config["hidden_size"], config["vocab_size"]
    out = {
        "model.embed_tokens.weight": Piece("token_embd.weight", (vocab, dim)),
        "model.norm.weight": Piece("output_norm.weight", (dim,)),
    }
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = Piece("output.weight", (vocab, dim))
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        out.update((at + name, piece) for name, piece in _layer(config, gguf, f"blk.{i}."))
    return out


def unused(config: dict[str, Any], gguf: GgufFile) -> list[str]:
    """Tensors of the file that no public tensor is made of, and that the config does not hold either."""
    used = {piece.tensor for piece in pieces(config, gguf).values()}
    return [name for name in gguf.tensors if name not in used and name != ROPE_FREQS]


def _layer(config: dict[str, Any], gguf: GgufFile, at: str) -> Iterator[tuple[str, Piece]]:
    dim, head_dim, hidden = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    yield "input_layernorm.weight", Piece(at + "attn_norm.weight", (dim,))
    yield "post_attention_layernorm.weight", Piece(at + "ffn_norm.weight", (dim,))
    for public, own, rows, columns, rotary in (
        ("q_proj", "attn_q", heads * head_dim, dim, heads),
        ("k_proj", "attn_k", kv_heads * head_dim, dim, kv_heads),
        ("v_proj", "attn_v", kv_heads * head_dim, dim, 0),
        ("o_proj", "attn_output", dim, heads * head_dim, 0),
    ):
        yield f"self_attn.{public}.weight", Piece(f"{at}{own}.weight", (rows, columns), rotary)
        if config.get("attention_bias"):
            yield f"self_attn.{public}.bias", Piece(f"{at}{own}.bias", (rows,), rotary)
    parts = (("ffn_gate", (hidden, dim)), ("ffn_down", (dim, hidden)), ("ffn_up", (hidden, dim)))
    experts = config.get("num_local_experts", 0)
    if not experts:
        for own, shape in parts:
            public = "mlp." + own.removeprefix("ffn_") + "_proj"
            yield f"{public}.weight", Piece(f"{at}{own}.weight", shape)
            if config.get("mlp_bias"):
                yield f"{public}.bias", Piece(f"{at}{own}.bias", shape[:1])
        return
    yield "block_sparse_moe.gate.weight", Piece(at + "ffn_gate_inp.weight", (experts, dim))
    for own, shape in parts:
        # one stack of all experts; files of 2023 have a tensor for each
        stacked = f"{at}{own}_exps.weight"
        alone = stacked not in gguf.tensors and f"{at}{own}.0.weight" in gguf.tensors
        public = {"ffn_gate": "w1", "ffn_down": "w2", "ffn_up": "w3"}[own]
        for e in range(experts):
            piece = Piece(f"{at}{own}.{e}.weight", shape) if alone else Piece(stacked, shape, expert=e)
            yield f"block_sparse_moe.experts.{e}.{public}.weight", piece
