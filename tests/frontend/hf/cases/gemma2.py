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
    "gemma2_no_caps": (
        "gemma2",
        dict(
            BASE,
            head_dim=12,
            sliding_window=9,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            query_pre_attn_scalar=7,
        ),
    ),
    "gemma2_layer_types": (
        "gemma2",
        dict(
            BASE,
            head_dim=8,
            sliding_window=20,
            attention_bias=True,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            attn_logit_softcapping=3.0,
            final_logit_softcapping=5.0,
            tie_word_embeddings=False,
            hidden_activation="silu",
        ),
    ),
}
