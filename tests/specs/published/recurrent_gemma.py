"""Griffin's models: the size of the published model, and what its config.json holds that changes the model."""

PUBLISHED = {"recurrent_gemma_2b": 2_682_862_080}  # google/recurrentgemma-2b
CONFIGS = {
    "recurrent_gemma_2b": dict(
        model_type="recurrent_gemma", vocab_size=256000, hidden_size=2560, num_hidden_layers=26,
        intermediate_size=15360, num_attention_heads=10, num_key_value_heads=1, head_dim=256, lru_width=2560,
        attention_window_size=2048, conv1d_width=4, block_types=["recurrent", "recurrent", "attention"],
        embeddings_scale_by_sqrt_dim=True, final_w_init_variance_scale=2 / 26, w_init_variance_scale=0.01,
        hidden_activation="gelu_pytorch_tanh", logits_soft_cap=30.0, partial_rotary_factor=0.5, rope_theta=10000.0,
        rms_norm_eps=1e-6, attention_bias=False,
    ),
}  # fmt: skip
