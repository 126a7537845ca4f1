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
    "olmo_hybrid_default": ("olmo_hybrid", dict(BASE, num_hidden_layers=4, num_key_value_heads=4)),
    "olmo_hybrid_grouped": (
        "olmo_hybrid",
        dict(
            BASE,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=12,
            linear_allow_neg_eigval=False,
            linear_conv_kernel_dim=3,
            attention_bias=True,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=5e5),
        ),
    ),
}
