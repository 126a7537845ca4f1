"""linear, scale, dropout, concat, add and mul: the glue between mixers."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from hybridc.ir.attrs import Flag, Float, Int, attr
from hybridc.ir.emit import ADD, ATOM, MUL, Code, Emit, call, lit
from hybridc.ir.ops.base import ZEROS, Check, Fill, Op, Param, Widths, op
from hybridc.ir.places import PARTIAL, REDUCED, split
from hybridc.ir.sharding import FIRST, Rule, Sharded, cut, tokenwise


@op("linear", "linear")
class Linear(Op):
    """y = x Wᵀ + b. Weight [out, in]."""

    out: int = attr(Int(), doc="width of the result")
    bias: bool = attr(Flag(), False, doc="add a bias")

    def width(self, ins: Widths) -> int:
        return self.out

    def params(self, ins: Widths) -> tuple[Param, ...]:
        weight = Param("weight", (self.out, ins[0]), Fill("linear", fan_in=ins[0]))
        return (weight, Param("bias", (self.out,), ZEROS)) if self.bias else (weight,)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("",)

    def rules(self, ins: Widths, ranks: int) -> tuple[Rule, ...]:
        """Whole on tokens, or cut by rows, or by columns."""
        rows = (Rule("rows", (REDUCED,), split(2)),) if self.out % ranks == 0 else ()
        columns = (Rule("columns", (split(2),), PARTIAL),) if ins[0] % ranks == 0 else ()
        return (*tokenwise(1, additive=not self.bias), *rows, *columns)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        if rule == "rows":
            parts = cut(ranks, (self.out, self.out))
            return Sharded(dataclasses.replace(self, out=self.out // ranks), {"weight": parts, "bias": parts})
        if rule == "columns":
            return Sharded(self, {"weight": cut(ranks, (ins[0], ins[0]), dim=1), "bias": FIRST}, (ins[0] // ranks,))
        return None

    def constructor(self, ins: Widths, emit: Emit) -> str:
        return emit.linear("", ins[0], self.out, bias=self.bias)


@op("scale")
class Scale(Op):
    """y = factor x."""

    additive: ClassVar[bool] = True

    factor: float = attr(Float(), doc="what to multiply with")

    def flops(self, ins: Widths, seq: int) -> float:
        return float(ins[0])

    def saved(self, ins: Widths, seq: int) -> float:
        return 0.0

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{lit(self.factor)} * {args[0].at(ATOM)}", MUL)


@op("dropout")
class Dropout(Op):
    """Training sets a share `p` of the elements to 0 and the others to x / (1 - p) (Srivastava et al., 2014)."""

    p: float = attr(Float(0.0), doc="share of the elements that training drops")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.p >= 1.0:
            check.error("HYB112", "p", f"expected less than 1, got {self.p}", "use a share below 1")
        return self

    def flops(self, ins: Widths, seq: int) -> float:
        return float(ins[0])

    def constructor(self, ins: Widths, emit: Emit) -> str:
        return call("nn.Dropout", self.p)


@op("concat")
class Concat(Op):
    """Joins its operands on the last dim."""

    operands: ClassVar[tuple[str, ...]] = ("...",)
    additive: ClassVar[bool] = True

    def width(self, ins: Widths) -> int:
        return sum(ins)

    def saved(self, ins: Widths, seq: int) -> float:
        return 0.0

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"torch.cat(({', '.join(a.text for a in args)}), dim=-1)")


def _meet(self: Op, ins: Widths, check: Check) -> None:
    if len(set(ins)) > 1:
        check.error(
            "HYB205",
            "",
            f"widths {' and '.join(map(str, ins))} do not meet in `{self.kind}`",
            "make both sides the same width, for example with a `linear`",
        )


@op("add")
class Add(Op):
    """Sum of two values of one width; written `a + b`, or `a | b` for parallel branches."""

    operands: ClassVar[tuple[str, ...]] = ("x", "y")
    additive: ClassVar[bool] = True

    def resolve(self, ins: Widths, check: Check) -> Self:
        _meet(self, ins, check)
        return self

    def flops(self, ins: Widths, seq: int) -> float:
        return float(ins[0])

    def saved(self, ins: Widths, seq: int) -> float:
        return 0.0

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{args[0].at(ADD)} + {args[1].at(MUL)}", ADD)


@op("mul")
class Mul(Op):
    """Product of two values of one width, elementwise; written `a * b`."""

    operands: ClassVar[tuple[str, ...]] = ("x", "y")

    def resolve(self, ins: Widths, check: Check) -> Self:
        _meet(self, ins, check)
        return self

    def flops(self, ins: Widths, seq: int) -> float:
        return float(ins[0])

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{args[0].at(MUL)} * {args[1].at(ATOM)}", MUL)
