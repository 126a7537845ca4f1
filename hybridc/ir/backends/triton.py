"""Kernels of our own for NVIDIA GPUs: `hybridc.runtime.gpu`."""

from __future__ import annotations

from hybridc.ir.backends.base import Backend, Facts, Offer

FP8_FROM = 90
"""The compute capability from which tensor cores multiply FP8 as the kernels do."""


def _fp8(facts: Facts) -> str:
    if int(str(facts["capability"])) < FP8_FROM:
        return f"sm{facts['capability']} has no tensor cores for FP8"
    return ""


def _experts(facts: Facts) -> str:
    format = str(facts.get("format", ""))
    if "delayed" in format:
        return "its experts remember no former steps, as delayed scales need it"
    return _fp8(facts) if "fp8" in format else ""


BACKEND = Backend(
    "triton",
    "",
    ("cuda:sm80", "cuda:sm90", "cuda:sm100"),
    {
        "bit_input": Offer("gpu", "gpu.BitInput"),
        "bit_linear": Offer("gpu", "gpu.BitLinear"),
        "bit_product": Offer("gpu", "gpu.BitProduct"),
        "causal_conv1d": Offer("gpu", "gpu.CausalConv1d"),
        "cross_entropy": Offer("gpu", "gpu.linear_cross_entropy"),
        "experts": Offer("gpu", "gpu.Experts", _experts),
        "fp8_input": Offer("gpu", "gpu.FP8Input", _fp8),
        "fp8_linear": Offer("gpu", "gpu.FP8Linear", _fp8),
        "fp8_product": Offer("gpu", "gpu.FP8Product", _fp8),
        "gated_delta_rule": Offer("gpu", "gpu.gated_delta_rule"),
        "lightning_attention": Offer("gpu", "gpu.lightning_attention"),
        "packed_bit_linear": Offer("gpu", "gpu.PackedBitLinear"),
        "selective_scan": Offer("gpu", "gpu.selective_scan"),
        "ssd": Offer("gpu", "gpu.ssd"),
    },
)
