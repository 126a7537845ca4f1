"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    moe_intermediate_size=16,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    num_experts=6,
    num_experts_per_tok=2,
    layer_types=["conv", "full_attention", "conv", "full_attention"],
)
CASES = {
    "lfm2_moe_biased": ("lfm2_moe", dict(BASE, num_dense_layers=1, routed_scaling_factor=1.7)),
    "lfm2_moe_plain": (
        "lfm2_moe",
        dict(
            BASE,
            num_dense_layers=2,
            use_expert_bias=False,
            norm_topk_prob=False,
            conv_bias=True,
            tie_word_embeddings=False,
            conv_L_cache=2,
        ),
    ),
}
