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
    "gemma3_pattern": (
        "gemma3_text",
        dict(
            BASE, num_hidden_layers=4, head_dim=8, sliding_window=12, sliding_window_pattern=2, query_pre_attn_scalar=8
        ),
    ),
    "gemma3_scaled_rope": (
        "gemma3_text",
        dict(
            BASE,
            head_dim=12,
            sliding_window=16,
            attention_bias=True,
            final_logit_softcapping=6.0,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                sliding_attention=dict(rope_type="default", rope_theta=5e3),
            ),
        ),
    ),
}
