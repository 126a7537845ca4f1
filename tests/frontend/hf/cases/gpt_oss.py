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
    "gpt_oss_plain_rope": (
        "gpt_oss",
        dict(
            BASE,
            intermediate_size=24,
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=3,
            sliding_window=9,
            swiglu_limit=1.5,
            swiglu_alpha=1.2,
            attention_bias=False,
            rope_parameters=dict(rope_type="default", rope_theta=1e4),
        ),
    ),
    "gpt_oss_aux": (
        "gpt_oss",
        dict(
            BASE,
            intermediate_size=24,
            head_dim=12,
            num_local_experts=4,
            num_experts_per_tok=1,
            sliding_window=30,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            tie_word_embeddings=True,
            output_router_logits=True,
            router_aux_loss_coef=0.05,
        ),
    ),
}
