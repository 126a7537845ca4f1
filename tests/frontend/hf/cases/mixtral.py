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
    "mixtral_full": (
        "mixtral",
        dict(BASE, intermediate_size=16, num_local_experts=5, num_experts_per_tok=3, sliding_window=None, head_dim=12),
    ),
    "mixtral_aux": (
        "mixtral",
        dict(
            BASE,
            intermediate_size=16,
            num_local_experts=4,
            num_experts_per_tok=1,
            sliding_window=7,
            tie_word_embeddings=True,
            output_router_logits=True,
            router_aux_loss_coef=0.05,
        ),
    ),
}
