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
    "granite_factors": (
        "granite",
        dict(
            BASE,
            embedding_multiplier=6.0,
            logits_scaling=3.0,
            residual_multiplier=0.4,
            attention_multiplier=0.15,
            tie_word_embeddings=True,
        ),
    ),
    "granite_biases": ("granite", dict(BASE, attention_bias=True, mlp_bias=True, attention_multiplier=0.5)),
}
