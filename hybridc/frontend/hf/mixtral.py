"""mixtral: llama's attention, and a mixture of gated experts with renormalised softmax routing."""

from __future__ import annotations

from hybridc.frontend import ast
from hybridc.frontend.hf.build import block, call, expr, model, normal_init, pipe, unless
from hybridc.frontend.hf.config import ACTIVATIONS, Config
from hybridc.frontend.hf.llama import decoder_weights
from hybridc.frontend.hf.rope import rope
from hybridc.frontend.hf.weightmap import Source, WeightMap, layered


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    dim, vocab = c.integer("hidden_size", 4096), c.integer("vocab_size", 32000)
    hidden, depth = c.integer("intermediate_size", 14336), c.integer("num_hidden_layers", 32)
    heads = c.integer("num_attention_heads", 32)
    kv_heads = c.integer("num_key_value_heads", heads if "num_key_value_heads" in c.values else 8)  # null: as heads
    head_dim = c.integer("head_dim", dim // heads)
    experts, top_k = c.integer("num_local_experts", 8), c.integer("num_experts_per_tok", 2)
    window = c.integer("sliding_window", None)
    eps = c.number("rms_norm_eps", 1e-5)
    act = c.choice("hidden_act", "silu", ACTIVATIONS)
    tied = c.flag("tie_word_embeddings", False)
    c.refuse_unless("router_jitter_noise", 0.0, (0, 0.0), "noise on the router's input in training")
    # transformers adds the balancing loss only when it returns router logits
    coefficient = c.number("router_aux_loss_coef", 0.001)
    aux = coefficient if c.flag("output_router_logits", False) else 0.0
    attention = call(
        "attention",
        heads=heads,
        kv_heads=unless(kv_heads, heads),
        head_dim=unless(head_dim, dim / heads),
        rope=rope(c, theta=1e6, max_positions=4096 * 32),
        window=window,
    )
    moe = call(
        "moe", experts=experts, hidden=hidden, top_k=top_k, act=unless(act, "silu"), aux_coef=unless(aux, 0.0)
    )  # fmt: skip
    spec = model(
        "mixtral",
        [
            ast.Param("dim", expr(dim)),
            ast.Let("norm", call("rmsnorm", eps=eps)),
            block("Layer", pipe("norm", ast.Label("attn", attention)), pipe("norm", moe)),
            ast.Entry("embed", call("embedding", vocab, "dim")),
            ast.Entry("layers", ast.Binary("*", ast.Name("Layer"), expr(depth))),
            ast.Entry("head", pipe("norm", call("lm_head", vocab, tied=unless(tied, False)))),
            normal_init(c.number("initializer_range", 0.02)),
        ],
    )
    base = decoder_weights(depth, heads * head_dim, kv_heads * head_dim, False, tied, {})
    old = layered(depth, "layers.{i}.moe.", "model.layers.{i}.block_sparse_moe.", _per_expert(experts, hidden))
    new = layered(depth, "layers.{i}.moe.", "model.layers.{i}.mlp.", _FUSED)
    alternatives = {name: (source,) for name, source in new.items()}
    return spec, WeightMap({**base.sources, **old}, alternatives, base.ignored)


def _per_expert(experts: int, hidden: int) -> dict[str, Source]:
    """The layout of the published files: w1 (gate), w3 (up) and w2 (down) of each expert."""
    first = tuple(f"experts.{e}.{w}.weight" for e in range(experts) for w in ("w1", "w3"))
    down = tuple(f"experts.{e}.w2.weight" for e in range(experts))
    return {
        "router.weight": Source(("gate.weight",)),
        "experts.gate_up": Source(first, (hidden, hidden), experts),
        "experts.down": Source(down, (), experts),
    }


_FUSED = {
    "router.weight": Source(("gate.weight",)),
    "experts.gate_up": Source(("experts.gate_up_proj",)),
    "experts.down": Source(("experts.down_proj",)),
}
"""The layout of transformers 5's modules, all experts of a layer in one tensor."""
