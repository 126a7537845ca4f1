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
    "phi3_partial_window": (
        "phi3",
        dict(
            BASE,
            sliding_window=13,
            rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5),
        ),
    ),
    "phi3_longrope": (
        "phi3",
        dict(
            BASE,
            tie_word_embeddings=True,
            original_max_position_embeddings=48,
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=1e4,
                short_factor=[1.0, 1.1, 1.3, 1.5],
                long_factor=[1.2, 2.0, 4.0, 7.0],
            ),
        ),
    ),
}
