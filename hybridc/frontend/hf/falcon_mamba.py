"""falcon_mamba: Mamba mixers with norms without weights on dt, B and C (Zuo et al., 2024)."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf import mamba
from hybridc.frontend.hf.build import call
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.inverse import Found
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    return mamba.stack(c, "falcon_mamba", call("rmsnorm", eps=c.number("mixer_rms_eps", 1e-6), affine=False))


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    return {**mamba.to_config(m), "mixer_rms_eps": m.op("ssm").norm.eps}
