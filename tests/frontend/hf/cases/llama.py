"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
CASES = {
    "llama_biases": ("llama", dict(BASE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=12)),
    "llama_yarn": (
        "llama",
        dict(
            BASE,
            num_key_value_heads=4,
            hidden_act="gelu",
            rms_norm_eps=1e-4,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=5e4, factor=4.0, original_max_position_embeddings=64, beta_fast=20.0
            ),
        ),
    ),
}
