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
CASES = {
    "qwen3_biases_windows": (
        "qwen3",
        dict(BASE, head_dim=16, attention_bias=True, use_sliding_window=True, sliding_window=9, max_window_layers=2),
    ),
    "qwen3_yarn": (
        "qwen3",
        dict(
            BASE,
            head_dim=12,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32),
        ),
    ),
}
