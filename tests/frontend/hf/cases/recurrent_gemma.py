"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(vocab_size=96, num_hidden_layers=3, pad_token_id=0, bos_token_id=1, eos_token_id=2)
CASES = {
    "recurrent_gemma_wide": (
        "recurrent_gemma",
        dict(
            BASE,
            hidden_size=40,
            intermediate_size=65,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            lru_width=48,
            conv1d_width=3,
            block_types=["attention", "recurrent"],
            attention_window_size=9,
            attention_bias=True,
            partial_rotary_factor=1.0,
            rope_theta=500.0,
            hidden_activation="silu",
            logits_soft_cap=5.0,
            tie_word_embeddings=False,
            rms_norm_eps=1e-3,
            w_init_variance_scale=0.3,
        ),
    ),
    "recurrent_gemma_narrow": (
        "recurrent_gemma",
        dict(
            BASE,
            hidden_size=24,
            intermediate_size=80,
            num_attention_heads=3,
            num_key_value_heads=None,
            lru_width=12,
            conv1d_width=5,
            block_types=["recurrent", "recurrent", "attention", "attention"],
            attention_window_size=20,
            rope_parameters={"rope_type": "default", "rope_theta": 2000.0, "partial_rotary_factor": 0.25},
            hidden_activation="gelu",
            logits_soft_cap=50.0,
        ),
    ),
}
