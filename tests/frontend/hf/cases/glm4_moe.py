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
MOE = dict(BASE, moe_intermediate_size=16, n_routed_experts=8, num_experts_per_tok=2, head_dim=8)
CASES = {
    "glm4_moe_norms": ("glm4_moe", dict(MOE, use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.7)),
    "glm4_moe_groups": (
        "glm4_moe",
        dict(
            MOE,
            n_shared_experts=2,
            n_group=4,
            topk_group=2,
            first_k_dense_replace=2,
            norm_topk_prob=False,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1e5, partial_rotary_factor=0.25),
        ),
    ),
}
