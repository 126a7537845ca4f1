"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_attention_heads=2,
    num_key_value_heads=1,
    mamba_n_heads=8,
    mamba_d_state=8,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
CASES = {
    "bamba_biases": (
        "bamba",
        dict(
            BASE,
            num_hidden_layers=3,
            attn_layer_indices=[0, 1],
            attention_bias=True,
            mlp_bias=True,
            mamba_proj_bias=True,
            mamba_conv_bias=False,
            mamba_n_groups=4,
            mamba_chunk_size=8,
            tie_word_embeddings=True,
            rms_norm_eps=1e-3,
            rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 2000.0},
        ),
    ),
    "bamba_whole_heads": (
        "bamba",
        dict(
            BASE,
            num_hidden_layers=3,
            attn_layer_indices=[1],
            mamba_expand=3,
            mamba_d_conv=2,
            time_step_limit=(0.02, 0.5),
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        ),
    ),
}
