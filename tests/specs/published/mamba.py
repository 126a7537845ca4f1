"""Mamba and its hybrids: sizes of the published models (the hub rounds some of them), and what their config.json files
hold that changes the model."""

PUBLISHED = {
    "mamba_130m": 129_135_360,  # state-spaces/mamba-130m-hf
    "falcon_mamba_7b": 7_272_665_088,  # tiiuae/falcon-mamba-7b
    "jamba_52b": 51_570_323_328,  # ai21labs/Jamba-v0.1
    "bamba_9b": 9_780_235_392,  # ibm-ai-platform/Bamba-9B-v2
    "granite_4_h_tiny": 6_939_037_248,  # ibm-granite/granite-4.0-h-tiny
    "nemotron_h_8b": 8_100_852_736,  # nvidia/Nemotron-H-8B-Base-8K
    "zamba2_1_2b": 1_215_064_704,  # Zyphra/Zamba2-1.2B
}
HYBRIDS = [5, 11, 17, 23, 29, 35]
CONFIGS = {
    "mamba_130m": dict(
        model_type="mamba", vocab_size=50280, hidden_size=768, num_hidden_layers=24, state_size=16, time_step_rank=48,
        intermediate_size=1536, expand=2, conv_kernel=4, layer_norm_epsilon=1e-5, initializer_range=0.1,
    ),
    "falcon_mamba_7b": dict(
        model_type="falcon_mamba", vocab_size=65024, hidden_size=4096, num_hidden_layers=64, state_size=16,
        time_step_rank=256, intermediate_size=8192, expand=16, conv_kernel=4, layer_norm_epsilon=1e-5,
        tie_word_embeddings=False, mixer_rms_eps=1e-6, initializer_range=0.1,
    ),
    "jamba_52b": dict(
        model_type="jamba", vocab_size=65536, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, num_experts=16, num_experts_per_tok=2, mamba_d_state=16,
        mamba_dt_rank=256, attn_layer_period=8, attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1,
        rms_norm_eps=1e-6,
    ),
    "bamba_9b": dict(
        model_type="bamba", vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, attn_layer_indices=[9, 18, 27], mamba_n_heads=128,
        mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_expand=2, rms_norm_eps=1e-5, rope_theta=10000.0,
    ),
    "granite_4_h_tiny": dict(
        model_type="granitemoehybrid", vocab_size=100352, hidden_size=1536, intermediate_size=512,
        shared_intermediate_size=1024, num_hidden_layers=40, num_attention_heads=12, num_key_value_heads=4,
        num_local_experts=64, num_experts_per_tok=6, mamba_n_heads=48, mamba_d_head=64, mamba_d_state=128,
        mamba_n_groups=1, mamba_expand=2, tie_word_embeddings=True, position_embedding_type="nope",
        attention_multiplier=0.0078125, embedding_multiplier=12, logits_scaling=6, residual_multiplier=0.22,
        rms_norm_eps=1e-5, initializer_range=0.1,
        layer_types=["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)],
    ),
    "nemotron_h_8b": dict(
        model_type="nemotron_h", vocab_size=131072, hidden_size=4096, intermediate_size=21504, num_hidden_layers=52,
        hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", num_attention_heads=32,
        num_key_value_heads=8, attention_head_dim=128, mamba_num_heads=128, mamba_head_dim=64, ssm_state_size=128,
        n_groups=8, chunk_size=128, layer_norm_epsilon=1e-5, mlp_hidden_act="relu2", rescale_prenorm_residual=True,
    ),
    "zamba2_1_2b": dict(
        model_type="zamba2", vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=38,
        layers_block_type=["hybrid" if i in HYBRIDS else "mamba" for i in range(38)], hybrid_layer_ids=HYBRIDS,
        num_attention_heads=32, num_key_value_heads=32, n_mamba_heads=64, mamba_d_state=128, mamba_ngroups=1,
        num_mem_blocks=1, use_shared_attention_adapter=True, use_mem_rope=True, adapter_rank=128, chunk_size=256,
    ),
}  # fmt: skip
