"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    num_local_experts=4,
    num_experts_per_tok=2,
    block_size=8,
)
CASES = {
    "minimax_plain": ("minimax", dict(BASE, layer_types=["linear_attention", "linear_attention", "full_attention"])),
    "minimax_factors": (
        "minimax",
        dict(
            BASE,
            head_dim=12,
            tie_word_embeddings=True,
            linear_attn_beta_factor=0.6,
            full_attn_alpha_factor=1.4,
            mlp_alpha_factor=0.9,
            output_router_logits=True,
            router_aux_loss_coef=0.02,
        ),
    ),
}
