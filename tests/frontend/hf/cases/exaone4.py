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
    "exaone4_pattern": ("exaone4", dict(BASE, num_hidden_layers=4, sliding_window=12, tie_word_embeddings=True)),
    "exaone4_full": (
        "exaone4",
        dict(BASE, sliding_window=None, layer_types=["full_attention"] * 3, rms_norm_eps=1e-4),
    ),
}
