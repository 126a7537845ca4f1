"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=24,
    intermediate_size=20,
    num_attention_heads=2,
    n_mamba_heads=4,
    mamba_d_state=8,
    chunk_size=8,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
CASES = {
    "zamba2_biases": (
        "zamba2",
        dict(
            BASE,
            num_hidden_layers=3,
            layers_block_type=["mamba", "hybrid", "hybrid"],
            add_bias_linear=True,
            num_mem_blocks=2,
            adapter_rank=3,
            hidden_act="silu",
            time_step_min=0.2,
            time_step_max=0.4,
            mamba_expand=3,
            mamba_d_conv=2,
            tie_word_embeddings=False,
        ),
    ),
    "zamba2_two_sets": (
        "zamba2",
        dict(
            BASE,
            num_hidden_layers=4,
            layers_block_type=["hybrid", "linear_attention", "hybrid", "hybrid"],
            num_mem_blocks=2,
            use_shared_attention_adapter=True,
            adapter_rank=2,
            use_mem_rope=True,
            use_long_context=True,
            mamba_ngroups=2,
            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 3000.0},
        ),
    ),
}
