"""Settings of tiny models; the folders of the same names in `goldens` hold them and their outputs."""

BASE = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    mamba_d_state=4,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
CASES = {
    "jamba_aux": (
        "jamba",
        dict(
            BASE,
            num_hidden_layers=4,
            attn_layer_period=3,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=0,
            num_experts=3,
            num_experts_per_tok=2,
            output_router_logits=True,
            router_aux_loss_coef=0.2,
            mamba_proj_bias=True,
            mamba_conv_bias=False,
            tie_word_embeddings=True,
        ),
    ),
    "jamba_dense": (
        "jamba",
        dict(
            BASE,
            num_hidden_layers=3,
            attn_layer_period=2,
            attn_layer_offset=1,
            num_experts=1,
            num_experts_per_tok=1,
            mamba_dt_rank=5,
            mamba_expand=1,
            mamba_d_conv=3,
            rms_norm_eps=1e-3,
        ),
    ),
}
