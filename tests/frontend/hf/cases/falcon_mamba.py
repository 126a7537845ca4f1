"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
CASES = {
    "falcon_mamba_norms": ("falcon_mamba", dict(BASE, state_size=8, mixer_rms_eps=0.05, tie_word_embeddings=False)),
    "falcon_mamba_biases": (
        "falcon_mamba",
        dict(BASE, state_size=4, use_bias=True, use_conv_bias=False, expand=1, conv_kernel=2, time_step_rank=6),
    ),
}
