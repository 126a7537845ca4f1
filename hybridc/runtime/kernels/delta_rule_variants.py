"""The forms in which the delta rule's kernels are compiled ahead: bf16 data, heads of 128 as published models have."""

from __future__ import annotations

import inspect
from typing import Any

from hybridc.runtime.kernels import delta_rule_channels as channels
from hybridc.runtime.kernels import delta_rule_channels_backward as channels_backward
from hybridc.runtime.kernels import delta_rule_scalar as scalar
from hybridc.runtime.kernels import delta_rule_states as states
from hybridc.runtime.kernels.delta_rule_step import step
from hybridc.runtime.kernels.variant import Variant

FP32 = frozenset(("beta", "dbeta", "decay", "dg", "g", "initial", "k_scale", "last", "q_scale"))
"""Arguments that are fp32, as are the gradients of those; and `old` and `new` of a step."""

INT32 = frozenset(("chunks", "borders", "firsts"))


def _variant(
    kernel: Any,
    name: str,
    *,
    warps: int = 4,
    stages: int = 2,
    targets: tuple[int, ...] = (80, 90, 100),
    **constants: Any,
) -> Variant:
    signature = {}
    for argument in inspect.signature(kernel.fn).parameters:
        if argument in constants:
            continue
        if argument in INT32:
            kind = "*i32:16"
        elif argument.removeprefix("grad_") in FP32 or (kernel is step and argument in ("old", "new")):
            kind = "*fp32:16"
        elif argument == "scale":
            kind = "fp32"
        elif argument == "tokens" or argument[-2:] in ("_t", "_h"):
            kind = "i32:16"
        else:
            kind = "*bf16:16"
        signature[argument] = kind
    return Variant(kernel, signature, constants, warps, stages, targets, name)


SIZES = {"HEADS": 32, "K": 128, "L": 64}
SHARED, ALONE = {"SHARE": 2}, {"SHARE": 1}
WIDTHS = {"V": 128, "BK": 128}
OLD, NEW = (80,), (90, 100)

VARIANTS = (
    *(
        made
        for name, solved in (("solve", False), ("resolve", True))
        for made in (
            _variant(scalar.solve, f"delta_rule_{name}", **SIZES, **SHARED, **WIDTHS, BV=64, SOLVED=solved),
            _variant(
                channels.solve, f"kda_{name}", warps=8, **SIZES, **ALONE, V=128, BK=32, BV=64, LEVELS=6, SOLVED=solved
            ),
        )
    ),
    *(
        made
        for name, wide, share in (("delta_rule", False, SHARED), ("kda", True, ALONE))
        for made in (
            *(
                _variant(
                    kernel, f"{name}_{kernel.fn.__name__}", **SIZES, **share, **WIDTHS, BV=32, CHANNELS=wide, **flags
                )
                for kernel, flags in (
                    (states.pass_states, {"INITIAL": False}),
                    (states.states_backward, {"LAST": False, "INITIAL": False}),
                )
            ),
            _variant(states.outputs, f"{name}_outputs", **SIZES, **share, **WIDTHS, BV=64, CHANNELS=wide),
            *(
                _variant(
                    states.reads_backward, f"{name}_reads_backward_{columns}", warps=8, targets=targets, **SIZES,
                    **WIDTHS, BV=columns, CHANNELS=wide,
                )
                for columns, targets in ((16, OLD), (32, NEW))
            ),
            _variant(step, f"{name}_step", HEADS=32, K=128, **share, **WIDTHS, BV=32, CHANNELS=wide),
        )
    ),
    _variant(scalar.pairs_backward, "delta_rule_pairs_backward", warps=8, stages=1, **SIZES, **SHARED, BK=64),
    *(
        _variant(
            channels_backward.pairs_backward, f"kda_pairs_backward_{few}", warps=8, stages=1, targets=targets, **SIZES,
            **ALONE, BK=few, LEVELS=6,
        )
        for few, targets in ((16, OLD), (32, NEW))
    ),
    _variant(scalar.unit_backward, "delta_rule_unit_backward", GROUPS=16, **SHARED, K=128, BT=32, BK=128),
)  # fmt: skip
