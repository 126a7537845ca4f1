"""The fillers of parameters, settled by the model's init scheme and written as calls of `hybridc.runtime.init`."""

from __future__ import annotations

import math

from hybridc.ir.emit import call
from hybridc.ir.graph import Module
from hybridc.ir.ops.base import Fill


def filler(fill: Fill, module: Module) -> str:
    """The expression that makes a parameter's filler.

    `normal`: N(0, std) for projections and embeddings (GPT-2). `kaiming`: U(±1/sqrt(fan_in)) for projections, N(0, std)
    for embeddings (torch's Linear; Mamba). With `depth`, residual outputs are divided by the root of the number of
    residual sublayers (GPT-2, section 2.3).
    """
    if not fill.is_role:
        return call(fill.name, *fill.args)
    scheme = module.init
    factor = module.residuals**-0.5 if fill.name == "residual" and scheme.depth and module.residuals else 1.0
    normal = scheme.kind == "normal" or fill.name == "embedding"
    std, bound = scheme.std * factor, 0.0 if normal else factor / math.sqrt(fill.fan_in)
    if fill.spread:  # -1, 0 and 1 as often as each other have a variance of 2/3
        return call("constant", _round(math.sqrt(1.5) * (std if normal else bound / math.sqrt(3))))
    return call("normal", _round(std)) if normal else call("uniform", _round(bound))


def _round(value: float) -> float:
    """Four digits: an initial spread needs no more, and the emitted line stays readable."""
    return float(f"{value:.4g}")
