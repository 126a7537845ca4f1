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
    "bitnet_biases": ("bitnet", dict(BASE, attention_bias=True, tie_word_embeddings=True, hidden_act="silu")),
    "bitnet_ternary": ("bitnet", dict(BASE, _bitnet_online=True, num_key_value_heads=4, rms_norm_eps=1e-4)),
}
