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
MOE = dict(BASE, moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts=5, num_experts_per_tok=2)
CASES = {
    "qwen2_moe_normed": (
        "qwen2_moe",
        dict(MOE, norm_topk_prob=True, qkv_bias=False, mlp_only_layers=[1], tie_word_embeddings=True),
    ),
    "qwen2_moe_windows": (
        "qwen2_moe",
        dict(
            MOE,
            decoder_sparse_step=2,
            use_sliding_window=True,
            sliding_window=10,
            output_router_logits=True,
            router_aux_loss_coef=0.02,
        ),
    ),
}
