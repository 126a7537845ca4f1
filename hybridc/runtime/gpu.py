"""What emitted code for NVIDIA GPUs calls: as `hybridc.runtime.ops`, in Triton.

Names, signatures, parameters and results are those of the functions and modules there.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from hybridc.runtime.kernels.bit_linear import BitInput, BitLinear, BitProduct, PackedBitLinear
from hybridc.runtime.kernels.conv import CausalConv1d
from hybridc.runtime.kernels.cross_entropy import linear_cross_entropy as _linear_cross_entropy
from hybridc.runtime.kernels.delta_rule import gated_delta_rule
from hybridc.runtime.kernels.experts import Experts
from hybridc.runtime.kernels.fp8_linear import FP8Input, FP8Linear, FP8Product
from hybridc.runtime.kernels.selective_scan import selective_scan
from hybridc.runtime.kernels.ssd import ssd
from hybridc.runtime.ops.autocast import result_dtype
from hybridc.runtime.ops.lightning_attention import lightning_attention as _lightning_attention

__all__ = [
    "BitInput",
    "BitLinear",
    "BitProduct",
    "CausalConv1d",
    "Experts",
    "FP8Input",
    "FP8Linear",
    "FP8Product",
    "PackedBitLinear",
    "gated_delta_rule",
    "lightning_attention",
    "linear_cross_entropy",
    "selective_scan",
    "ssd",
]

lightning_attention = partial(_lightning_attention, scan=ssd)


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    """Mean of -log softmax(logits)[target] over targets other than -100, without all logits at a time.

    As `hybridc.runtime.kernels.cross_entropy.linear_cross_entropy`, which has the shapes; x, weight and bias meet in
    autocast's dtype where that is on, as they do in a linear map, and in x's else.
    """
    dtype = result_dtype(x)
    bias = None if bias is None else bias.to(dtype)
    return _linear_cross_entropy(x.to(dtype), weight.to(dtype), targets, bias, scale=scale, softcap=softcap)
