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
    "olmo2_grouped": ("olmo2", dict(BASE, tie_word_embeddings=True)),
    "olmo2_biases": (
        "olmo2",
        dict(
            BASE,
            num_key_value_heads=4,
            attention_bias=True,
            rms_norm_eps=1e-4,
            rope_parameters=dict(rope_type="default", rope_theta=5e5),
        ),
    ),
}
