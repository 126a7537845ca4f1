"""llama: pre-norm attention and gated mlp."""

from __future__ import annotations

from hybridc.frontend import ast
from hybridc.frontend.hf.build import block, call, expr, model, normal_init, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Source, WeightMap, joined, layered, same


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab = c.integer("hidden_size", 4096), c.integer("vocab_size", 32000)
    hidden, depth = c.integer("intermediate_size", 11008), c.integer("num_hidden_layers", 32)
    heads = c.integer("num_attention_heads", 32)
    kv_heads = c.integer("num_key_value_heads", heads)
    head_dim = c.integer("head_dim", dim // heads)
    eps = c.number("rms_norm_eps", 1e-6)
    bias, mlp_bias = c.flag("attention_bias", False), c.flag("mlp_bias", False)
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    tied = c.flag("tie_word_embeddings", False)
    c.ignore("is_llama_config")  # in SmolLM's configs, which are llama's
    c.refuse_unless("rope_interleaved", False, [False], "rotary pairs are the two halves of a head")
    attention = call(
        "attention",
        heads=heads,
        kv_heads=unless(kv_heads, heads),
        head_dim=unless(head_dim, dim / heads),
        rope=rope(c, theta=10000.0, max_positions=2048),
        bias=unless(bias, False),
        out_bias=unless(bias, False),
    )
    mlp = (
        call("swiglu", hidden, bias=unless(mlp_bias, False))
        if act == "silu"
        else call("mlp", hidden, act=act, gated=True, bias=unless(mlp_bias, False))
    )
    spec = model(
        "llama",
        [
            ast.Param("dim", expr(dim)),
            ast.Let("norm", call("rmsnorm", eps=eps)),
            block(
                "Layer", pipe("norm", ast.Label("attn", attention)), pipe("norm", ast.Label("mlp", mlp))
            ),
            ast.Entry("embed", call("embedding", vocab, "dim")),
            ast.Entry("layers", ast.Binary("*", ast.Name("Layer"), expr(depth))),
            ast.Entry("head", pipe("norm", call("lm_head", vocab, tied=unless(tied, False)))),
            normal_init(c.number("initializer_range", 0.02)),
        ],
    )  # fmt: skip
    return spec, decoder_weights(
        depth, heads * head_dim, kv_heads * head_dim, bias, tied, mlp_weights(hidden, mlp_bias)
    )


def mlp_weights(hidden: int, bias: bool) -> dict[str, Source]:
    """gate_proj, up_proj and down_proj as gate_up and down."""
    suffixes = ("weight", "bias") if bias else ("weight",)
    entries = joined("mlp.gate_up", [("mlp.gate_proj", hidden), ("mlp.up_proj", hidden)], suffixes)
    return {**entries, **same(*((f"mlp.down.{s}", f"mlp.down_proj.{s}") for s in suffixes))}


def decoder_weights(
    depth: int, q: int, kv: int, bias: bool, tied: bool, mlp: dict[str, Source]
) -> WeightMap:  # fmt: skip
    """Names of a decoder in llama's layout; `mlp` are the entries of its feed-forward part."""
    suffixes = ("weight", "bias") if bias else ("weight",)
    parts = [("self_attn.q_proj", q), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)]
    layer = {
        **joined("attn.qkv", parts, suffixes),
        **same(*((f"attn.out.{s}", f"self_attn.o_proj.{s}") for s in suffixes)),
        **same(("norm.weight", "input_layernorm.weight"), ("norm_2.weight", "post_attention_layernorm.weight")),
        **mlp,
    }
    ends = same(("embed.embedding.weight", "model.embed_tokens.weight"), ("head.norm.weight", "model.norm.weight"))
    head = {} if tied else same(("head.lm_head.weight", "lm_head.weight"))
    layers = layered(depth, "layers.{i}.", "model.layers.{i}.", layer)
    ignored = ("lm_head.weight",) if tied else ()
    return WeightMap({**ends, **layers, **head}, ignored=ignored)
