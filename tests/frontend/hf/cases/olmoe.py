"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
CASES = {
    "olmoe_clipped": ("olmoe", dict(BASE, intermediate_size=16, num_experts=5, num_experts_per_tok=3, clip_qkv=0.8)),
    "olmoe_biases_normed": (
        "olmoe",
        dict(
            BASE,
            intermediate_size=16,
            num_experts=4,
            num_experts_per_tok=2,
            attention_bias=True,
            norm_topk_prob=True,
            tie_word_embeddings=True,
            output_router_logits=True,
        ),
    ),
}
