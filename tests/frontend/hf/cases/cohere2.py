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
    "cohere2_pattern": ("cohere2", dict(BASE, num_hidden_layers=4, sliding_window=9, logit_scale=0.3)),
    "cohere2_biases": (
        "cohere2",
        dict(
            BASE,
            attention_bias=True,
            tie_word_embeddings=False,
            sliding_window=16,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            layer_norm_eps=1e-3,
            logit_scale=1.0,
        ),
    ),
}
