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
SSM = dict(mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=8, mamba_chunk_size=8)
CASES = {
    "falcon_h1_biases": (
        "falcon_h1",
        dict(
            BASE,
            **SSM,
            attention_bias=True,
            mlp_bias=True,
            mamba_proj_bias=True,
            projectors_bias=True,
            mamba_conv_bias=False,
            head_dim=12,
            mlp_multipliers=[0.7, 1.2],
        ),
    ),
    "falcon_h1_gate_first": (
        "falcon_h1",
        dict(
            BASE,
            **SSM,
            mamba_rms_norm=True,
            mamba_norm_before_gate=True,
            mamba_d_conv=3,
            tie_word_embeddings=True,
            key_multiplier=0.5,
            ssm_in_multiplier=1.4,
            ssm_multipliers=[0.9, 1.1, 0.7, 1.3, 0.8],
        ),
    ),
}
