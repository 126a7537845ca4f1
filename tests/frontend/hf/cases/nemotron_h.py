"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs.

In all of them the greedy tokens are those of the library without its cache: its single steps do not clamp dt.
"""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=24,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=12,
    mamba_num_heads=4,
    mamba_head_dim=12,
    ssm_state_size=8,
    n_groups=2,
    chunk_size=8,
    moe_intermediate_size=12,
    moe_shared_expert_intermediate_size=16,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
CASES = {
    "nemotron_h_latent": (
        "nemotron_h",
        dict(
            BASE,
            layers_block_type=["mamba", "moe", "attention", "moe", "mlp"],
            n_routed_experts=6,
            num_experts_per_tok=3,
            n_group=3,
            topk_group=2,
            moe_latent_size=12,
            mlp_bias=True,
            norm_topk_prob=False,
            routed_scaling_factor=1.7,
            tie_word_embeddings=True,
        ),
    ),
    "nemotron_h_letters": (
        "nemotron_h",
        dict(
            BASE,
            hybrid_override_pattern="M-*ME",
            use_bias=True,
            use_conv_bias=False,
            conv_kernel=3,
            time_step_min=0.2,
            time_step_max=0.4,
            mlp_hidden_act="silu",
            n_routed_experts=4,
            layer_norm_epsilon=1e-3,
            rescale_prenorm_residual=False,
        ),
    ),
}
