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
MOE = dict(
    BASE,
    num_key_value_heads=4,
    moe_intermediate_size=16,
    n_routed_experts=6,
    num_experts_per_tok=2,
    kv_lora_rank=12,
    qk_rope_head_dim=4,
    qk_nope_head_dim=8,
    v_head_dim=12,
)
CASES = {
    "deepseek_v3_no_q_rank": (
        "deepseek_v3",
        dict(MOE, q_lora_rank=None, n_group=2, topk_group=1, first_k_dense_replace=2, rope_interleave=False),
    ),
    "deepseek_v3_yarn": (
        "deepseek_v3",
        dict(
            MOE,
            q_lora_rank=16,
            n_group=1,
            topk_group=1,
            n_shared_experts=2,
            first_k_dense_replace=0,
            attention_bias=True,
            norm_topk_prob=False,
            routed_scaling_factor=1.0,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e4,
                factor=8.0,
                original_max_position_embeddings=32,
                mscale=1.0,
                mscale_all_dim=0.8,
            ),
        ),
    ),
}
