"""rmsnorm, layernorm and the gated rmsnorm of Mamba-2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from hybridc.ir.attrs import Choice, Flag, Float, Int, Record, attr
from hybridc.ir.emit import Emit, call, quote
from hybridc.ir.kernels import Kernel
from hybridc.ir.ops.base import ONES, ZEROS, Check, Op, Param, Widths, op

HOLDERS = {
    "rmsnorm": "nn.RMSNorm",
    "zero_centered_rmsnorm": "ops.ZeroCenteredRMSNorm",
    "layernorm": "nn.LayerNorm",
    "gated_rmsnorm": "ops.GatedRMSNorm",
}
"""What holds the parameters of norms that a generated kernel computes."""


def _maker(name: str, emit: Emit, part: str, **facts: object) -> str:
    """What makes the module of a norm: who computes it, or a holder of parameters for a generated kernel."""
    return HOLDERS[name] if part in emit.inner else emit.part(name, **facts)


def applied(norm: Op, part: str, x: str, emit: Emit) -> str:
    """A call of the norm that is the part `part` of the op being written: its kernel's, or its module's."""
    weights = (f"self.{part}.{p.name}" for p in norm.params((1,)))
    return emit.generated(part, x, *weights) or f"self.{part}({x})"


@op("rmsnorm", "norm")
class RMSNorm(Op):
    """x / sqrt(mean(x²) + eps) · weight over the last dim (Zhang and Sennrich, 2019).

    With `zero_centered` the factor is 1 + weight, which starts at 0 (as in Gemma: weight decay pulls the factor to 1).
    """

    eps: float = attr(Float(0.0), 1e-5, doc="added to the mean square")
    zero_centered: bool = attr(Flag(), False, doc="multiply with 1 + weight")
    affine: bool = attr(Flag(), True, doc="have a weight")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.zero_centered and not self.affine:
            label = "a norm without a weight has nothing to centre"
            check.error("HYB221", "zero_centered", label, "leave out affine=false or zero_centered=true")
        return self

    def params(self, ins: Widths) -> tuple[Param, ...]:
        return (Param("weight", (ins[0],), ZEROS if self.zero_centered else ONES),) if self.affine else ()

    def flops(self, ins: Widths, seq: int) -> float:
        return 4.0 * ins[0]

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        name = "zero_centered_rmsnorm" if self.zero_centered else "rmsnorm" if self.affine else "plain_rmsnorm"
        return (Kernel(name, ins[0], (("eps", self.eps),)),)

    def constructor(self, ins: Widths, emit: Emit, part: str = "") -> str:
        if self.zero_centered:
            return call(_maker("zero_centered_rmsnorm", emit, part, width=ins[0]), ins[0], eps=self.eps)
        plain = {} if self.affine else {"elementwise_affine": False}
        maker = _maker("rmsnorm", emit, part, width=ins[0], affine=self.affine)
        return call(maker, ins[0], eps=self.eps, **plain)


@op("layernorm", "norm")
class LayerNorm(Op):
    """(x - mean) / sqrt(var + eps) · weight + bias over the last dim (Ba et al., 2016)."""

    eps: float = attr(Float(0.0), 1e-5, doc="added to the variance")
    bias: bool = attr(Flag(), True, doc="add a bias")

    def params(self, ins: Widths) -> tuple[Param, ...]:
        weight = Param("weight", (ins[0],), ONES)
        return (weight, Param("bias", (ins[0],), ZEROS)) if self.bias else (weight,)

    def flops(self, ins: Widths, seq: int) -> float:
        return 7.0 * ins[0]

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        return (Kernel("layernorm" if self.bias else "layernorm_without_bias", ins[0], (("eps", self.eps),)),)

    def constructor(self, ins: Widths, emit: Emit, part: str = "") -> str:
        maker = _maker("layernorm", emit, part, width=ins[0], bias=self.bias)
        return call(maker, ins[0], eps=self.eps, bias=self.bias)


@op("gated_rmsnorm", "norm")
class GatedRMSNorm(Op):
    """rmsnorm(x · act(gate)) when `gate_first`, else rmsnorm(x) · act(gate), per group of channels (Mamba-2: silu)."""

    operands: ClassVar[tuple[str, ...]] = ("x", "gate")

    eps: float = attr(Float(0.0), 1e-5, doc="added to the mean square")
    groups: int = attr(Int(), 1, doc="channels are normalised in this many groups")
    gate_first: bool = attr(Flag(), True, doc="gate before the norm, as Mamba-2 does")
    act: str = attr(Choice(("silu", "sigmoid")), "silu", doc="activation of the gate")

    def resolve(self, ins: Widths, check: Check) -> Self:
        self.check_groups(ins[0], check, "groups")
        if len(ins) > 1 and ins[0] != ins[1]:
            check.error(
                "HYB205",
                "gate",
                f"the gate has width {ins[1]}, the value {ins[0]}",
                "make the gate as wide as the value",
            )
        return self

    def check_groups(self, width: int, check: Check, attribute: str) -> None:
        """Reports groups that do not divide the channels; `attribute` is where the op being checked has them."""
        if width % self.groups:
            label = f"{width} channels do not divide into {self.groups} groups"
            check.error("HYB206", attribute, label, f"use a divisor of {width} for the norm's groups")

    def params(self, ins: Widths) -> tuple[Param, ...]:
        return (Param("weight", (ins[0],), ONES),)

    def flops(self, ins: Widths, seq: int) -> float:
        return 9.0 * ins[0]

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        name = f"gated_rmsnorm_{self.act}" if self.gate_first else f"rmsnorm_gated_{self.act}"
        return (Kernel(name, ins[0] // self.groups, (("eps", self.eps),), self.groups),)

    def by_head(self, width: int, heads: int, part: str, into: str) -> tuple[Kernel, ...]:
        """The kernel for the norm of each of `heads` heads, all with one weight; none where a head has groups."""
        if self.groups > 1:
            return ()
        (kernel,) = self.kernels((width,))
        return (replace(kernel, name=f"head_{kernel.name}", segments=heads, part=part, into=into),)

    def constructor(self, ins: Widths, emit: Emit, part: str = "") -> str:
        act = {} if self.act == "silu" else {"act": quote(self.act)}
        facts = {"width": ins[0], "groups": self.groups, "gate_first": self.gate_first, "act": self.act}
        maker = _maker("gated_rmsnorm", emit, part, **facts)
        return call(maker, ins[0], eps=self.eps, groups=self.groups, gate_first=self.gate_first, **act)

    def applied(self, x: str, gate: str, emit: Emit) -> str:
        """A call of the part `norm` that is this op, for x and gate [..., channels]."""
        return emit.generated("norm", x, gate, "self.norm.weight") or f"self.norm({x}, {gate})"

    def by_heads(self, x: str, gate: str, emit: Emit) -> str:
        """A call of the part `norm` that is this op for each head, for x [..., heads, width] and gate [..., heads
        width]: [..., heads width]."""
        made = emit.generated("norm", f"{x}.flatten(-2)", gate, "self.norm.weight")
        return made or f"self.norm({x}, {gate}.view_as({x})).flatten(-2)"

    def over(self, ranks: int) -> Any:
        """The norm of one rank's channels: its own groups, or its share of one that ranks have between them."""
        return replace(self, groups=self.groups // ranks) if self.groups % ranks == 0 else SplitNorm(self, ranks)


def over(norm: Any, ranks: int) -> Any:
    """A norm, or none, of channels that `ranks` have between them."""
    return None if norm is None else SplitNorm(norm, ranks)


@op("split_norm", "norm")
class SplitNorm(Op):
    """A norm of channels that ranks have between them, whose sums are over all of them."""

    inserted: ClassVar[bool] = True

    norm: Any = attr(Record(("rmsnorm", "layernorm", "gated_rmsnorm")), doc="what it computes")
    ranks: int = attr(Int(), doc="how many ranks have the channels between them")

    def params(self, ins: Widths) -> tuple[Param, ...]:
        made: tuple[Param, ...] = self.norm.params(ins)
        return made

    def constructor(self, ins: Widths, emit: Emit, part: str = "") -> str:
        holder, _, rest = self.norm.constructor(ins, Emit(), part).partition("(")
        return f"ops.Split{holder.rpartition('.')[2]}({rest}"

    def applied(self, x: str, gate: str, emit: Emit) -> str:
        """As the gated norm's."""
        return f"self.norm({x}, {gate})"
