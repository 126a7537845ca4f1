"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    moe_intermediate_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    kv_lora_rank=12,
    qk_rope_head_dim=4,
    qk_nope_head_dim=8,
    v_head_dim=12,
    num_local_experts=8,
    num_experts_per_tok=2,
    head_dim=8,
)
CASES = {
    "bailing_hybrid_groups": (
        "bailing_hybrid",
        dict(BASE, layer_group_size=2, n_group=4, topk_group=2, first_k_dense_replace=1, kda_lower_bound=-3.0),
    ),
    "bailing_hybrid_unbounded": (
        "bailing_hybrid",
        dict(
            BASE,
            layer_types=["full_attention", "linear_attention", "linear_attention"],
            mlp_layer_types=["sparse", "dense", "sparse"],
            kda_safe_gate=False,
            q_lora_rank=12,
            n_group=1,
            topk_group=1,
            short_conv_kernel_size=3,
            norm_topk_prob=False,
            n_shared_experts=2,
            attention_bias=True,
        ),
    ),
}
