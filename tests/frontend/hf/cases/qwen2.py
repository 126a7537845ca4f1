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
    "qwen2_windows": (
        "qwen2",
        dict(BASE, use_sliding_window=True, sliding_window=11, max_window_layers=1, tie_word_embeddings=True),
    ),
    "qwen2_linear_rope": (
        "qwen2",
        dict(
            BASE,
            num_key_value_heads=1,
            hidden_act="relu",
            rope_parameters=dict(rope_type="linear", rope_theta=1e6, factor=2.0),
        ),
    ),
    "qwen2_layer_types": (
        "qwen2",
        dict(
            BASE,
            use_sliding_window=True,
            sliding_window=7,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
}
