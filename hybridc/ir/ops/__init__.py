"""All op definitions, one file a family. Importing this package registers them."""

from hybridc.ir.ops import attention, basic, embedding, mamba, mamba2, mlp, moe, norms, rope
from hybridc.ir.ops.base import ALIASES, OPS, Check, Op, Param, Split, StateTensor, fields, find, names

__all__ = [
    "ALIASES",
    "OPS",
    "Check",
    "Op",
    "Param",
    "Split",
    "StateTensor",
    "attention",
    "basic",
    "embedding",
    "fields",
    "find",
    "mamba",
    "mamba2",
    "mlp",
    "moe",
    "names",
    "norms",
    "rope",
]
