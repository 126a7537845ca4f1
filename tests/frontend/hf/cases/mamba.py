"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
CASES = {
    "mamba_biases": (
        "mamba",
        dict(
            BASE,
            state_size=4,
            use_bias=True,
            use_conv_bias=False,
            expand=3,
            conv_kernel=3,
            tie_word_embeddings=False,
            layer_norm_epsilon=1e-4,
            rescale_prenorm_residual=True,
        ),
    ),
    "mamba_rank": ("mamba", dict(BASE, state_size=8, time_step_rank=5, time_step_min=0.01, time_step_max=0.3)),
}
