"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs.

In `mamba2_limits` the greedy tokens are those of the library without its cache: its single steps do not clamp dt.
"""

BASE = dict(vocab_size=96, hidden_size=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_hidden_layers=2)
CASES = {
    "mamba2_biases": (
        "mamba2",
        dict(
            BASE,
            num_heads=8,
            head_dim=8,
            state_size=8,
            expand=2,
            n_groups=4,
            chunk_size=8,
            use_bias=True,
            use_conv_bias=False,
            tie_word_embeddings=True,
        ),
    ),
    "mamba2_limits": (
        "mamba2",
        dict(
            BASE,
            num_heads=4,
            head_dim=24,
            state_size=12,
            expand=3,
            n_groups=1,
            conv_kernel=3,
            time_step_limit=(0.01, 0.4),
            rescale_prenorm_residual=True,
        ),
    ),
}
