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
    "lfm2_adjusted": (
        "lfm2",
        dict(BASE, full_attn_idxs=[1], conv_L_cache=4, block_multiple_of=16, block_ffn_dim_multiplier=1.3),
    ),
    "lfm2_biases": (
        "lfm2",
        dict(
            BASE,
            conv_bias=True,
            tie_word_embeddings=False,
            block_auto_adjust_ff_dim=False,
            layer_types=["full_attention", "conv", "conv"],
            norm_eps=1e-3,
        ),
    ),
}
