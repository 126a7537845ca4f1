"""The base of op definitions and their registry.

An op is one frozen dataclass in one file: its attributes (see `hybridc.ir.attrs`), shape rule, parameters, costs, cache
state, what a mesh may split, and how it is emitted. `ins` is always the tuple of the operands' widths (last dims).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from hybridc.diagnostics import NO_SPAN, Sink, Span
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit
from hybridc.ir.kernels import Kernel
from hybridc.ir.sharding import CUT, Cut, Rule, Sharded, tokenwise, whole_tokens
from hybridc.ir.types import TensorType

Widths = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fill:
    """How a parameter starts: a role that the model's init scheme settles, or a named filler with its arguments.

    Roles: "linear" (a projection), "residual" (a projection whose result is added to the stream), "embedding". With
    `spread` it is the number that makes random -1, 0 and 1 spread as the role's numbers do.
    """

    name: str
    args: tuple[float, ...] = ()
    fan_in: int = 0
    spread: bool = False

    @property
    def is_role(self) -> bool:
        return self.name in ("linear", "residual", "embedding")


ONES, ZEROS = Fill("ones"), Fill("zeros")


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: its name below the op, shape, first value, whether it stays fp32, whether another tensor is it, and
    whether each layer has its own where the block is shared. One of bytes says how many numbers it `packs`. `cut` is
    the part of it that a rank has."""

    name: str
    shape: tuple[int, ...]
    fill: Fill
    fp32: bool = False
    tied: bool = False
    own: bool = False
    packs: int = 0
    cut: Cut | None = None

    @property
    def numel(self) -> int:
        """How many numbers it stands for."""
        return self.packs or self.elements

    @property
    def elements(self) -> int:
        """How many elements its tensor has."""
        out = 1
        for size in self.shape:
            out *= size
        return out


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A part of an op's cache: elements per sequence of a given length, and whether they are fp32 whatever the model
    is."""

    name: str
    elements: int
    fp32: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """`attribute` has `size` of `what`, cut over mesh axis `axis`. With `replicable`, an axis that is a multiple is
    fine too."""

    axis: str
    attribute: str
    size: int
    what: str
    code: str = "HYB215"
    replicable: bool = False

    def fits(self, ranks: int) -> bool:
        return self.size % ranks == 0 or (self.replicable and ranks % self.size == 0)


@dataclass
class Check:
    """Where an op reports that its attributes do not work out: knows the spans of the op and of each argument."""

    sink: Sink = field(default_factory=Sink)
    span: Span = NO_SPAN
    spans: dict[str, Span] = field(default_factory=dict)

    def error(self, code: str, attribute: str, label: str, help: str) -> None:
        self.sink.report(code, self.spans.get(attribute, self.span), label, help)


@dataclass(frozen=True)
class Op:
    """One kind of op. Subclasses are frozen dataclasses registered with `@op`."""

    kind: ClassVar[str]
    family: ClassVar[str]
    operands: ClassVar[tuple[str, ...]] = ("x",)
    """Names of the operands: the first is piped in, the others are given by keyword; ("...",) takes any number."""
    record: ClassVar[bool] = False
    """True for what only stands inside another op's attributes, such as `rope`."""
    inserted: ClassVar[bool] = False
    """True for what passes put in and no spec can call."""
    layerwise: ClassVar[tuple[str, ...]] = ()
    """Numbers among the attributes that emitted code can take at run time, as `Emit.number` writes them: layers that
    differ in no more are of one class."""
    additive: ClassVar[bool] = False
    """Whether f(a + b) = f(a) + f(b), so that ranks can apply the op to their parts of a sum."""

    def resolve(self, ins: Widths, check: Check) -> Self:
        """Fills derived attributes from the operand widths and reports what does not work out."""
        return self

    def width(self, ins: Widths) -> int:
        """Last dim of the result."""
        return ins[0]

    def result(self, operands: tuple[TensorType, ...]) -> TensorType:
        """Type of the result."""
        return operands[0].with_width(self.width(tuple(t.width for t in operands)))

    def params(self, ins: Widths) -> tuple[Param, ...]:
        return ()

    def projections(self, ins: Widths) -> tuple[str, ...]:
        """The parts that are linear maps in whole, which precision rules can quantize, those of experts by their
        weights; "" for the op itself."""
        return tuple(
            p.name.removesuffix("weight").removesuffix(".")
            for p in self.params(ins)
            if p.fill.name in ("linear", "residual") and len(p.shape) in (2, 3) and not p.fp32
        )

    def entries(self, ins: Widths) -> tuple[str, ...]:
        """The projections that read the first operand, where nothing else of the op does; else none."""
        return ()

    def flops(self, ins: Widths, seq: int) -> float:
        """Forward floating point operations per token in a row of `seq` tokens; a multiply-add counts as two."""
        return sum(2.0 * p.numel for p in self.params(ins) if len(p.shape) == 2)

    def saved(self, ins: Widths, seq: int) -> float:
        """Elements per token that the forward keeps for the backward."""
        return float(sum(ins))

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        """Cache of one sequence of `length` tokens."""
        return ()

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        """What mesh axes cut."""
        return ()

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """What one of `ranks` tensor-parallel ranks computes by a rule of `rules`; None for an op that is not cut."""
        return None

    def rules(self, ins: Widths, ranks: int) -> tuple[Rule, ...]:
        """How the op lies on `ranks` tensor-parallel ranks: those that can be cut are, others act on tokens."""
        if self.sharded(CUT.name, ins, ranks) is not None:
            return (CUT,)
        if self.cache(ins, 1):
            return whole_tokens(len(ins))
        return tokenwise(len(ins), additive=self.additive)

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        """Generated kernels that compute the op, or parts of it."""
        return ()

    def constructor(self, ins: Widths, emit: Emit) -> str:
        """The constructor expression of the torch or runtime module that this op is, or "" """
        return ""

    def body(self, ins: Widths, emit: Emit) -> ClassBody | None:
        """The class that this op becomes, for ops made of several modules."""
        return None

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        """The expression that applies the op; `module` is the attribute that holds it."""
        return Code(f"{module}({', '.join(a.text for a in args)})", ATOM)


OPS: dict[str, type[Op]] = {}
ALIASES: dict[str, tuple[str, dict[str, Any]]] = {}
"""Other names of an op with some attributes set: name -> (kind, attributes)."""

T = TypeVar("T", bound=type[Op])


@dataclass_transform(frozen_default=True)
def op(kind: str, family: str = "other", **aliases: dict[str, Any]) -> Callable[[T], T]:
    """Class decorator: makes a frozen dataclass of the definition and registers it under `kind` and its aliases.

    `family` is what pictures group the op with: attention, recurrence, mlp, moe, ends, linear, norm or other.
    """

    def register(cls: T) -> T:
        made = dataclass(frozen=True)(cls)
        made.kind, made.family = kind, family
        OPS[kind] = made
        for name, attributes in aliases.items():
            ALIASES[name] = (kind, attributes)
        return cast(T, made)

    return register


def fields(kind: type[Op]) -> dict[str, dataclasses.Field[Any]]:
    """The attributes of an op class by the name that a spec uses (`kind` for the field `kind_`), in positional
    order."""
    return {f.name.rstrip("_"): f for f in dataclasses.fields(kind)}


def find(name: str) -> tuple[type[Op], dict[str, Any]] | None:
    """The op class that `name` stands for and the attributes that the name itself sets."""
    if name in ALIASES:
        kind, attributes = ALIASES[name]
        return OPS[kind], attributes
    return (OPS[name], {}) if name in OPS and not OPS[name].inserted else None


def names(*, records: bool = True) -> list[str]:
    """All names that a spec can call, sorted."""
    return sorted([k for k, c in OPS.items() if not c.inserted and (records or not c.record)] + list(ALIASES))


def multiple(value: int, of: int) -> str:
    """Words for a remedy: the multiples of `of` on both sides of `value`."""
    below = value // of * of
    return f"{below} or {below + of}" if below else str(of)
