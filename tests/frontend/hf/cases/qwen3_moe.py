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
MOE = dict(BASE, moe_intermediate_size=16, num_experts=6, num_experts_per_tok=2, head_dim=12)
CASES = {
    "qwen3_moe_window": (
        "qwen3_moe",
        dict(MOE, use_sliding_window=True, sliding_window=9, attention_bias=True, decoder_sparse_step=2),
    ),
    "qwen3_moe_aux": (
        "qwen3_moe",
        dict(
            MOE,
            norm_topk_prob=True,
            mlp_only_layers=[0],
            tie_word_embeddings=True,
            output_router_logits=True,
            router_aux_loss_coef=0.03,
        ),
    ),
}
