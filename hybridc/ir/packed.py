"""Parameters as a net holds them: of projections in `bitnet(packed)` bytes and scales, in place of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hybridc.ir.emit import Emit
from hybridc.ir.formats import parse
from hybridc.ir.ops.base import Fill, Op, Param, Widths


@dataclass
class _Linears(Emit):
    """Emits nothing: notes the projections that an op makes as linear maps, by their names below it, with the rows of
    those fused in each. What is fused is said in one place, where the op emits it."""

    prefix: str = ""
    found: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def linear(self, name: str, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> str:
        self.found[f"{self.prefix}{name}"] = parts or (out,)
        return "None"

    def below(self, name: str) -> Emit:
        return replace(self, prefix=f"{self.prefix}{name}.")


def linear_parts(op: Op, ins: Widths) -> dict[str, tuple[int, ...]]:
    """The rows of what is fused in each linear map of an op, by its name below the op ("" for the op itself)."""
    emit = _Linears()
    if op.body(ins, emit) is None:
        op.constructor(ins, emit)
    return emit.found


def unpackable(op: Op, ins: Widths, part: str) -> str:
    """Why a projection cannot be packed, "" where it can: experts are one tensor, and a tied weight is the
    embedding's."""
    for param in op.params(ins):
        if param.name.removesuffix("weight").removesuffix(".") == part:
            if param.tied:
                return "is the embedding's weight"
            return "holds experts" if len(param.shape) == 3 else ""
    return ""


def stored(op: Op, ins: Widths, formats: Mapping[str, str]) -> tuple[Param, ...]:
    """An op's parameters where its projections have these formats, by their names below the op.

    A weight [out, in] in `bitnet(packed)` is `weight` uint8 [Σ ⌈part / 4⌉, in] and `weight_scale` fp32 [parts].
    """
    packed = {part for part, text in formats.items() if (format := parse(text)) is not None and format.packed}
    if not packed:
        return op.params(ins)
    fused = linear_parts(op, ins)
    out: list[Param] = []
    for param in op.params(ins):
        part = param.name.removesuffix("weight").removesuffix(".")
        if part not in packed or part not in fused or not param.name.endswith("weight"):
            out.append(param)
            continue
        rows = fused[part]
        shape = (sum(-(-r // 4) for r in rows), param.shape[1])
        scale = f"{part}.weight_scale".removeprefix(".")
        out.append(replace(param, shape=shape, fill=Fill("ternary"), packs=param.numel))
        out.append(replace(param, name=scale, shape=(len(rows),), fill=replace(param.fill, spread=True), fp32=True))
    return tuple(out)
