"""Transformers without experts: sizes of the published models, and what their config.json files hold that changes the
model.

A size is what the hub counts in the model's safetensors files, but where a comment says "by transformers": there it is
what transformers' class has, built from the config.
"""

PUBLISHED = {
    "qwen2_5_0_5b": 494_032_768,  # Qwen/Qwen2.5-0.5B
    "qwen3_0_6b": 596_049_920,  # Qwen/Qwen3-0.6B, by transformers: its files hold the tied embedding as a head too
    "olmo2_1b": 1_484_916_736,  # allenai/OLMo-2-0425-1B
    "phi3_mini": 3_821_079_552,  # microsoft/Phi-3-mini-4k-instruct
    "starcoder2_3b": 3_030_371_328,  # bigcode/starcoder2-3b
    "command_r7b": 8_028_033_024,  # CohereLabs/c4ai-command-r7b-12-2024, by transformers
    "granite_3_1_2b": 2_533_531_648,  # ibm-granite/granite-3.1-2b-base
    "exaone4_1_2b": 1_279_391_488,  # LGAI-EXAONE/EXAONE-4.0-1.2B
    "smollm3_3b": 3_075_098_624,  # HuggingFaceTB/SmolLM3-3B
    "gemma2_2b": 2_614_341_888,  # google/gemma-2-2b
    "gemma3_1b": 999_885_952,  # google/gemma-3-1b-pt
    "bitnet_2b": 2_412_820_480,  # microsoft/bitnet-b1.58-2B-4T-bf16, by transformers
}
CONFIGS = {
    "qwen2_5_0_5b": dict(
        model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6,
        rope_theta=1000000.0, sliding_window=32768, use_sliding_window=False, max_window_layers=24,
        tie_word_embeddings=True,
    ),
    "qwen3_0_6b": dict(
        model_type="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6,
        rope_theta=1000000, sliding_window=None, use_sliding_window=False, max_window_layers=28, attention_bias=False,
        tie_word_embeddings=True,
    ),
    "olmo2_1b": dict(
        model_type="olmo2", vocab_size=100352, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=4096, rms_norm_eps=1e-6,
        rope_theta=500000, attention_bias=False, tie_word_embeddings=False,
    ),
    "phi3_mini": dict(
        model_type="phi3", vocab_size=32064, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=4096,
        original_max_position_embeddings=4096, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None,
        sliding_window=2047, attention_bias=False, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=False,
    ),
    "starcoder2_3b": dict(
        model_type="starcoder2", vocab_size=49152, hidden_size=3072, intermediate_size=12288, num_hidden_layers=30,
        num_attention_heads=24, num_key_value_heads=2, max_position_embeddings=16384, norm_epsilon=1e-5,
        rope_theta=999999.4420358813, sliding_window=4096, hidden_act="gelu_pytorch_tanh", use_bias=True,
        initializer_range=0.018042, mlp_type="default", norm_type="layer_norm", attention_dropout=0.1,
        embedding_dropout=0.1, residual_dropout=0.1,
    ),
    "command_r7b": dict(
        model_type="cohere2", vocab_size=256000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=132096,
        layer_norm_eps=1e-5, rope_theta=50000, rope_scaling=None, sliding_window=4096, sliding_window_pattern=4,
        logit_scale=0.25, attention_bias=False, layer_switch=4, order_of_interleaved_layers="local_attn_first",
        position_embedding_type="rope_gptj", rotary_pct=1.0, use_embedding_sharing=True, use_gated_activation=True,
        use_parallel_block=True, use_parallel_embedding=True, use_qk_norm=False, cache_implementation="hybrid",
    ),
    "granite_3_1_2b": dict(
        model_type="granite", vocab_size=49155, hidden_size=2048, intermediate_size=8192, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=5000000.0, rope_scaling=None, attention_bias=False, mlp_bias=False, attention_multiplier=0.015625,
        attention_dropout=0.1, embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
        tie_word_embeddings=True,
    ),
    "exaone4_1_2b": dict(
        model_type="exaone4", vocab_size=102400, hidden_size=2048, intermediate_size=4096, num_hidden_layers=30,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=65536, rms_norm_eps=1e-5,
        rope_theta=1000000,
        rope_scaling=dict(factor=16.0, high_freq_factor=4.0, low_freq_factor=1.0, rope_type="llama3",
                          original_max_position_embeddings=8192),
        sliding_window=None, sliding_window_pattern=None, layer_types=["full_attention"] * 30,
        tie_word_embeddings=True,
    ),
    "smollm3_3b": dict(
        model_type="smollm3", vocab_size=128256, hidden_size=2048, intermediate_size=11008, num_hidden_layers=36,
        num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=65536, rms_norm_eps=1e-6,
        rope_theta=5000000.0, rope_scaling=None, sliding_window=None, use_sliding_window=False, max_window_layers=28,
        no_rope_layers=[1, 1, 1, 0] * 9, no_rope_layer_interval=4, layer_types=["full_attention"] * 36,
        attention_bias=False, mlp_bias=False,
    ),
    "gemma2_2b": dict(
        model_type="gemma2", vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=8192, rms_norm_eps=1e-6,
        rope_theta=10000.0, sliding_window=4096, query_pre_attn_scalar=256, attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
        attention_bias=False, cache_implementation="hybrid",
    ),
    "gemma3_1b": dict(
        model_type="gemma3_text", vocab_size=262144, hidden_size=1152, intermediate_size=6912, num_hidden_layers=26,
        num_attention_heads=4, num_key_value_heads=1, head_dim=256, max_position_embeddings=32768, rms_norm_eps=1e-6,
        rope_theta=1000000, rope_local_base_freq=10000, rope_scaling=None, sliding_window=512,
        sliding_window_pattern=6, query_pre_attn_scalar=256, attn_logit_softcapping=None, final_logit_softcapping=None,
        hidden_activation="gelu_pytorch_tanh", attention_bias=False, cache_implementation="hybrid",
    ),
    "bitnet_2b": dict(
        model_type="bitnet", vocab_size=128256, hidden_size=2560, intermediate_size=6912, num_hidden_layers=30,
        num_attention_heads=20, num_key_value_heads=5, max_position_embeddings=4096, rms_norm_eps=1e-5,
        rope_theta=500000.0, hidden_act="relu2", tie_word_embeddings=True,
        quantization_config=dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="online"),
    ),
}  # fmt: skip
