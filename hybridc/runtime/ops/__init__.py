"""The functions and modules that emitted code calls."""

from hybridc.runtime.cache import ConvState, KVState, LatentState, MambaState, ScanState
from hybridc.runtime.ops.attention import attention
from hybridc.runtime.ops.bit_linear import BitInput, BitLinear, BitProduct, PackedBitLinear
from hybridc.runtime.ops.conv import CausalConv1d
from hybridc.runtime.ops.delta_rule import gated_delta_rule
from hybridc.runtime.ops.latent_attention import latent_attention
from hybridc.runtime.ops.lightning_attention import alibi_slopes, lightning_attention
from hybridc.runtime.ops.lora import Lora
from hybridc.runtime.ops.moe import Experts, router_logits, sigmoid_topk, softmax_topk
from hybridc.runtime.ops.norms import GatedRMSNorm, ZeroCenteredRMSNorm
from hybridc.runtime.ops.rg_lru import BlockLinear, rg_lru
from hybridc.runtime.ops.rope import Rope, rope
from hybridc.runtime.ops.selective_scan import selective_scan
from hybridc.runtime.ops.ssd import ssd
from hybridc.runtime.parallel.split_norms import (
    SplitGatedRMSNorm,
    SplitLayerNorm,
    SplitRMSNorm,
    SplitZeroCenteredRMSNorm,
)
from hybridc.runtime.parallel.summed import SummedLinear
from hybridc.runtime.parallel.vocab import VocabEmbedding
from hybridc.runtime.quant.linear import FP8Input, FP8Linear, FP8Product

__all__ = [
    "BitInput",
    "BitLinear",
    "BitProduct",
    "BlockLinear",
    "CausalConv1d",
    "ConvState",
    "Experts",
    "FP8Input",
    "FP8Linear",
    "FP8Product",
    "GatedRMSNorm",
    "KVState",
    "LatentState",
    "Lora",
    "MambaState",
    "PackedBitLinear",
    "Rope",
    "ScanState",
    "SplitGatedRMSNorm",
    "SplitLayerNorm",
    "SplitRMSNorm",
    "SplitZeroCenteredRMSNorm",
    "SummedLinear",
    "VocabEmbedding",
    "ZeroCenteredRMSNorm",
    "alibi_slopes",
    "attention",
    "gated_delta_rule",
    "latent_attention",
    "lightning_attention",
    "rg_lru",
    "rope",
    "router_logits",
    "selective_scan",
    "sigmoid_topk",
    "softmax_topk",
    "ssd",
]
