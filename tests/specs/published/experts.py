"""Transformers with experts: sizes of the published models, and what their config.json files hold that changes the
model.

A size is what the hub counts in the model's safetensors files, correction biases of routers among it. Taken off are the
layer for multi-token prediction (a layer more, a projection of stream and embedding, three norms, an embedding and a
head), which transformers does not load either, and what is there because weights have few bits.
"""

GLM_LAYER = 128 * 4096 * (2 * 96 + 2 * 8) + 128 * (96 + 2 * 8) + 129 * 3 * 4096 * 1408 + 128 * 4097 + 2 * 4096
GLM_MTP = GLM_LAYER + 2 * 4096**2 + 3 * 4096 + 2 * 151552 * 4096
LATENT = 1536 * (7168 + 1 + 128 * 192) + 7168 * (512 + 64) + 512 * (1 + 128 * 256) + 128 * 128 * 7168
DEEPSEEK_LAYER = LATENT + 257 * 3 * 7168 * 2048 + 256 * 7169 + 2 * 7168
DEEPSEEK_MTP = DEEPSEEK_LAYER + 2 * 7168**2 + 3 * 7168 + 2 * 129280 * 7168
DEEPSEEK_SCALES = 41_540_496  # of the blocks of 128 by 128 values of 8 bits

PUBLISHED = {
    "mixtral_8x7b": 46_702_792_704,  # mistralai/Mixtral-8x7B-v0.1
    "olmoe_1b_7b": 6_919_161_856,  # allenai/OLMoE-1B-7B-0924
    "qwen1_5_moe_a2_7b": 14_315_784_192,  # Qwen/Qwen1.5-MoE-A2.7B
    "qwen3_30b_a3b": 30_532_122_624,  # Qwen/Qwen3-30B-A3B
    "glm_4_5_air": 110_468_824_832 - GLM_MTP,  # zai-org/GLM-4.5-Air
    "gpt_oss_20b": 20_914_757_184,  # openai/gpt-oss-20b, by transformers: in its files the experts have 4 bits
    "deepseek_v3": 684_531_386_000 - DEEPSEEK_MTP - DEEPSEEK_SCALES,  # deepseek-ai/DeepSeek-V3
}
CONFIGS = {
    "mixtral_8x7b": dict(
        model_type="mixtral", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=32768, rms_norm_eps=1e-5,
        rope_theta=1000000.0, sliding_window=None, num_local_experts=8, num_experts_per_tok=2,
        output_router_logits=False, router_aux_loss_coef=0.02, tie_word_embeddings=False,
    ),
    "olmoe_1b_7b": dict(
        model_type="olmoe", vocab_size=50304, hidden_size=2048, intermediate_size=1024, num_hidden_layers=16,
        num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=4096, rms_norm_eps=1e-5,
        rope_theta=10000.0, rope_scaling=None, attention_bias=False, clip_qkv=None, num_experts=64,
        num_experts_per_tok=8, norm_topk_prob=False, output_router_logits=False, router_aux_loss_coef=0.01,
        tie_word_embeddings=False,
    ),
    "qwen1_5_moe_a2_7b": dict(
        model_type="qwen2_moe", vocab_size=151936, hidden_size=2048, intermediate_size=5632, num_hidden_layers=24,
        num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=8192, rms_norm_eps=1e-6,
        rope_theta=1000000.0, sliding_window=32768, use_sliding_window=False, max_window_layers=21,
        decoder_sparse_step=1, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632, norm_topk_prob=False, output_router_logits=False,
        router_aux_loss_coef=0.001, tie_word_embeddings=False,
    ),
    "qwen3_30b_a3b": dict(
        model_type="qwen3_moe", vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=48,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6,
        rope_theta=1000000.0, rope_scaling=None, sliding_window=None, use_sliding_window=False, max_window_layers=48,
        attention_bias=False, decoder_sparse_step=1, mlp_only_layers=[], num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768, norm_topk_prob=True, output_router_logits=False, router_aux_loss_coef=0.001,
        tie_word_embeddings=False,
    ),
    "glm_4_5_air": dict(
        model_type="glm4_moe", vocab_size=151552, hidden_size=4096, intermediate_size=10944, num_hidden_layers=46,
        num_attention_heads=96, num_key_value_heads=8, head_dim=128, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=1000000, rope_scaling=None, partial_rotary_factor=0.5, attention_bias=True, use_qk_norm=False,
        n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=1408,
        first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.0,
        num_nextn_predict_layers=1, tie_word_embeddings=False,
    ),
    "gpt_oss_20b": dict(
        model_type="gpt_oss", vocab_size=201088, hidden_size=2880, intermediate_size=2880, num_hidden_layers=24,
        num_attention_heads=64, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=150000,
        rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=4096,
                          rope_type="yarn", truncate=False),
        initial_context_length=4096, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12,
        attention_bias=True, num_local_experts=32, num_experts_per_tok=4, experts_per_token=4, swiglu_limit=7.0,
        output_router_logits=False, router_aux_loss_coef=0.9, tie_word_embeddings=False,
    ),
    "deepseek_v3": dict(
        model_type="deepseek_v3", vocab_size=129280, hidden_size=7168, intermediate_size=18432, num_hidden_layers=61,
        num_attention_heads=128, num_key_value_heads=128, max_position_embeddings=163840, rms_norm_eps=1e-6,
        rope_theta=10000,
        rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0, mscale_all_dim=1.0,
                          original_max_position_embeddings=4096, type="yarn"),
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        attention_bias=False, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
        moe_intermediate_size=2048, first_k_dense_replace=3, n_group=8, topk_group=4, norm_topk_prob=True,
        routed_scaling_factor=2.5, scoring_func="sigmoid", topk_method="noaux_tc", aux_loss_alpha=0.001, seq_aux=True,
        moe_layer_freq=1, ep_size=1, num_nextn_predict_layers=1, tie_word_embeddings=False,
    ),
}  # fmt: skip
