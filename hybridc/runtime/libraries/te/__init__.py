"""NVIDIA's Transformer Engine (2.20 or newer) under the names, signatures and parameters of `hybridc.runtime.ops`.

Modules are Transformer Engine's own, with parameters of our names, so that a state dict of one form loads into the
other: what Transformer Engine keeps there besides (`_extra_state`) is empty for all recipes used here, and left out. It
computes on CUDA tensors alone, and its modules cannot be made where there is no CUDA, not even without memory. So none
of its kernels has run in the tests of this project: docs/libraries.md says what they check.
"""

from hybridc.runtime.libraries.missing import missing

try:
    import transformer_engine.pytorch  # noqa: F401
except ImportError as error:
    raise missing("transformer-engine[pytorch]", error) from error

from hybridc.runtime.libraries.te.attention import attention
from hybridc.runtime.libraries.te.experts import Experts
from hybridc.runtime.libraries.te.linear import FP8Linear, Linear
from hybridc.runtime.libraries.te.norms import LayerNorm, RMSNorm, ZeroCenteredRMSNorm
from hybridc.runtime.libraries.te.recipes import FP8Product
from hybridc.runtime.quant.linear import FP8Input

__all__ = [
    "Experts",
    "FP8Input",
    "FP8Linear",
    "FP8Product",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "ZeroCenteredRMSNorm",
    "attention",
]
