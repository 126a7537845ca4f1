"""Hybrids of attention with convolutions and linear attention: sizes of the published models, and what their
config.json files hold that changes the model.

A size is what the hub counts in the model's safetensors files, correction biases of routers among it, but where a
comment says "by transformers": there it is what transformers' class has, built from the config, and those biases.
"""

FULL, LINEAR, CONV = "full_attention", "linear_attention", "conv"

# Qwen3-Next's layer for multi-token prediction, which transformers does not load: a layer of attention and experts, a
# projection of stream and embedding, three norms
QWEN_ATTENTION = 2048 * 256 * (2 * 16 + 2 * 2 + 16) + 2 * 256
QWEN_EXPERTS = 513 * 3 * 2048 * 512 + 2048 * (512 + 1)
QWEN_MTP = QWEN_ATTENTION + QWEN_EXPERTS + 2 * 2048 + 2 * 2048**2 + 3 * 2048

PUBLISHED = {
    "lfm2_1_2b": 1_170_340_608,  # LiquidAI/LFM2-1.2B
    "lfm2_8b_a1b": 8_339_930_560,  # LiquidAI/LFM2-8B-A1B
    "minimax_text_01": 456_089_655_296,  # MiniMaxAI/MiniMax-Text-01-hf
    "qwen3_next_80b_a3b": 81_324_862_720 - QWEN_MTP,  # Qwen/Qwen3-Next-80B-A3B-Instruct
    "kimi_linear_48b_a3b": 49_122_681_728,  # moonshotai/Kimi-Linear-48B-A3B-Base
    "olmo_hybrid_7b": 7_430_870_688,  # allenai/Olmo-Hybrid-7B, by transformers
    # inclusionAI/Ling-3.0-flash, by transformers, whose defaults are its config, without the layer for multi-token
    # prediction
    "ling_3_flash": 124_414_211_552,
}
KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
CONFIGS = {
    "lfm2_1_2b": dict(
        model_type="lfm2", vocab_size=65536, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=128000, norm_eps=1e-5, rope_theta=1000000.0,
        block_ff_dim=12288, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0, block_multiple_of=256,
        conv_L_cache=3, conv_bias=False, full_attn_idxs=[2, 5, 8, 10, 12, 14], block_dim=2048, block_norm_eps=1e-5,
        block_use_swiglu=True, conv_dim=2048, conv_dim_out=2048, num_heads=32, use_pos_enc=True,
    ),
    "lfm2_8b_a1b": dict(
        model_type="lfm2_moe", vocab_size=65536, hidden_size=2048, intermediate_size=7168, num_hidden_layers=24,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=128000, norm_eps=1e-5,
        rope_theta=1000000.0, conv_L_cache=3, conv_bias=False, num_dense_layers=2, num_experts=32,
        num_experts_per_tok=4, moe_intermediate_size=1792, norm_topk_prob=True, use_expert_bias=True,
        routed_scaling_factor=1.0, layer_types=[FULL if i in (2, 6, 10, 14, 18, 21) else CONV for i in range(24)],
    ),
    "minimax_text_01": dict(
        model_type="minimax", vocab_size=200064, hidden_size=6144, intermediate_size=9216, num_hidden_layers=80,
        num_attention_heads=64, num_key_value_heads=8, head_dim=128, max_position_embeddings=10240000,
        rms_norm_eps=1e-5, rope_theta=10000000, rotary_dim=64, sliding_window=None, postnorm=True, num_local_experts=32,
        num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001, router_jitter_noise=0.0,
        shared_intermediate_size=0, shared_moe_mode="sigmoid", block_size=256,
        layer_types=[FULL if i % 8 == 7 else LINEAR for i in range(80)],
        full_attn_alpha_factor=3.5565588200778455, full_attn_beta_factor=1.0,
        linear_attn_alpha_factor=3.5565588200778455, linear_attn_beta_factor=1.0,
        mlp_alpha_factor=3.5565588200778455, mlp_beta_factor=1.0, tie_word_embeddings=False,
    ),
    "qwen3_next_80b_a3b": dict(
        model_type="qwen3_next", vocab_size=151936, hidden_size=2048, intermediate_size=5120, num_hidden_layers=48,
        num_attention_heads=16, num_key_value_heads=2, head_dim=256, max_position_embeddings=262144, rms_norm_eps=1e-6,
        rope_theta=10000000, rope_scaling=None, partial_rotary_factor=0.25, attention_bias=False,
        full_attention_interval=4, linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16,
        linear_value_head_dim=128, linear_num_value_heads=32, decoder_sparse_step=1, mlp_only_layers=[],
        num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512,
        norm_topk_prob=True, output_router_logits=False, router_aux_loss_coef=0.001, tie_word_embeddings=False,
    ),
    "kimi_linear_48b_a3b": dict(
        model_type="kimi_linear", vocab_size=163840, hidden_size=2304, intermediate_size=9216, num_hidden_layers=27,
        num_attention_heads=32, num_key_value_heads=32, head_dim=72, model_max_length=1048576, rms_norm_eps=1e-5,
        rope_theta=10000.0, rope_scaling=None, mla_use_nope=True, q_lora_rank=None, kv_lora_rank=512,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        linear_attn_config=dict(head_dim=128, num_heads=32, short_conv_kernel_size=4, full_attn_layers=KIMI_FULL,
                                kda_layers=[i for i in range(1, 28) if i not in KIMI_FULL]),
        first_k_dense_replace=1, moe_layer_freq=1, num_experts=256, num_experts_per_token=8, num_shared_experts=1,
        moe_intermediate_size=1024, moe_renormalize=True, moe_router_activation_func="sigmoid", num_expert_group=1,
        topk_group=1, use_grouped_topk=True, routed_scaling_factor=2.446, num_nextn_predict_layers=0,
        tie_word_embeddings=False,
    ),
    "olmo_hybrid_7b": dict(
        model_type="olmo_hybrid", vocab_size=100352, hidden_size=3840, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=30, num_key_value_heads=30, max_position_embeddings=65536, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_theta=None, rope_type="default"), attention_bias=False,
        layer_types=[FULL if i % 4 == 3 else LINEAR for i in range(32)], linear_num_key_heads=30,
        linear_num_value_heads=30, linear_key_head_dim=96, linear_value_head_dim=192, linear_conv_kernel_dim=4,
        linear_allow_neg_eigval=True, linear_a_log_min=0.0, linear_a_log_max=16.0, linear_dt_min=0.001,
        linear_dt_max=0.1, linear_dt_init_floor=1e-4, tie_word_embeddings=False,
    ),
    "ling_3_flash": dict(
        model_type="bailing_hybrid", vocab_size=157184, hidden_size=2560, intermediate_size=6144, num_hidden_layers=42,
        num_attention_heads=32, num_key_value_heads=32, head_dim=128, max_position_embeddings=262144,
        rms_norm_eps=1e-6, rope_theta=6000000.0, layer_group_size=6, kv_lora_rank=512, q_lora_rank=None,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, short_conv_kernel_size=4, kda_safe_gate=True,
        kda_lower_bound=-5.0, first_k_dense_replace=2, num_experts=512, num_experts_per_tok=8, num_shared_experts=1,
        moe_intermediate_size=768, n_group=8, topk_group=4, norm_topk_prob=True, routed_scaling_factor=2.5,
        num_nextn_predict_layers=1, tie_word_embeddings=False,
    ),
}  # fmt: skip
