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
    "smollm3_interval": ("smollm3", dict(BASE, no_rope_layer_interval=2, tie_word_embeddings=False)),
    "smollm3_windows": (
        "smollm3",
        dict(
            BASE,
            no_rope_layers=[1, 0, 1],
            use_sliding_window=True,
            sliding_window=8,
            attention_bias=True,
            mlp_bias=True,
        ),
    ),
}
