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
    moe_intermediate_size=16,
    shared_expert_intermediate_size=24,
    num_experts=5,
    num_experts_per_tok=2,
    head_dim=16,
    linear_key_head_dim=8,
    linear_value_head_dim=12,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
)
CASES = {
    "qwen3_next_interval": (
        "qwen3_next",
        dict(BASE, full_attention_interval=2, linear_conv_kernel_dim=3, norm_topk_prob=False, attention_bias=True),
    ),
    "qwen3_next_dense": (
        "qwen3_next",
        dict(
            BASE,
            layer_types=["full_attention", "linear_attention", "linear_attention"],
            mlp_only_layers=[1],
            linear_num_value_heads=2,
            tie_word_embeddings=True,
            output_router_logits=True,
            router_aux_loss_coef=0.03,
            rope_parameters=dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.5),
        ),
    ),
}
