"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    moe_intermediate_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    model_max_length=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    kv_lora_rank=12,
    qk_rope_head_dim=4,
    qk_nope_head_dim=8,
    v_head_dim=12,
    num_experts=8,
    num_experts_per_token=2,
    linear_head_dim=8,
    linear_num_heads=4,
)
CASES = {
    "kimi_linear_groups": (
        "kimi_linear",
        dict(
            BASE,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            num_expert_group=4,
            topk_group=2,
            num_shared_experts=2,
            linear_conv_kernel_dim=3,
        ),
    ),
    "kimi_linear_dense": (
        "kimi_linear",
        dict(
            BASE,
            layer_types=["full_attention", "linear_attention", "linear_attention"],
            mlp_layer_types=["sparse", "dense", "sparse"],
            q_lora_rank=12,
            moe_renormalize=False,
            attention_bias=True,
            tie_word_embeddings=True,
        ),
    ),
}
