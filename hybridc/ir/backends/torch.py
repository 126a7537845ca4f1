"""Plain torch, on all targets: `torch.nn` and `hybridc.runtime.ops`."""

from __future__ import annotations

from hybridc.ir.backends.base import Backend, Facts, Offer

CUDA = ("cuda:sm80", "cuda:sm90", "cuda:sm100")

MODULES = {"linear": "nn.Linear", "rmsnorm": "nn.RMSNorm", "layernorm": "nn.LayerNorm", "embedding": "nn.Embedding"}
"""Torch's own modules, for which it has kernels on all devices."""

FAST = {
    "attention": "ops.attention",
    "latent_attention": "ops.latent_attention",
    "lora": "ops.Lora",
    "block_linear": "ops.BlockLinear",
    "router_logits": "ops.router_logits",
    "alibi_slopes": "ops.alibi_slopes",
}
"""What comes down to products of matrices or torch's attention, for which it has kernels on all devices."""

SLOW = {
    "causal_conv1d": "ops.CausalConv1d",
    "gated_delta_rule": "ops.gated_delta_rule",
    "gated_rmsnorm": "ops.GatedRMSNorm",
    "zero_centered_rmsnorm": "ops.ZeroCenteredRMSNorm",
    "lightning_attention": "ops.lightning_attention",
    "rg_lru": "ops.rg_lru",
    "rope": "ops.rope",
    "selective_scan": "ops.selective_scan",
    "softmax_topk": "ops.softmax_topk",
    "sigmoid_topk": "ops.sigmoid_topk",
    "ssd": "ops.ssd",
}
"""What torch runs in many small steps."""

EMULATED = {
    "experts": "ops.Experts",
    "fp8_linear": "ops.FP8Linear",
    "fp8_input": "ops.FP8Input",
    "fp8_product": "ops.FP8Product",
    "bit_linear": "ops.BitLinear",
    "bit_input": "ops.BitInput",
    "bit_product": "ops.BitProduct",
    "packed_bit_linear": "ops.PackedBitLinear",
}
"""What is there to compute the same numbers on a CPU."""


def _on_cpu(facts: Facts) -> str:
    return "torch only emulates it, for CPUs" if facts["capability"] else ""


BACKEND = Backend(
    "torch",
    "",
    ("cpu", *CUDA),
    {
        **{part: Offer("", text) for part, text in MODULES.items()},
        **{part: Offer("ops", text) for part, text in FAST.items()},
        **{part: Offer("ops", text, plain=True) for part, text in SLOW.items()},
        **{part: Offer("ops", text, _on_cpu) for part, text in EMULATED.items()},
    },
)
