"""The two programs of a group: its own, and that of its gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy
from sympy import Add, Expr, Mul

from hybridc.codegen.triton.functions import (
    WIDTH,
    cast,
    e4m3_factor,
    equal,
    int8_factor,
    magnitude,
    near,
    symbol,
    to_e4m3,
    to_int8,
)
from hybridc.codegen.triton.group import Group, Output
from hybridc.codegen.triton.program import (
    FULL,
    ROW,
    Access,
    Program,
    Statement,
    Store,
    known_names,
    names,
    parse,
    pruned,
    rank,
)

ONE_A_ROW = {"e4m3_row": (e4m3_factor, to_e4m3), "int8_row": (int8_factor, to_int8)}
"""Formats with one factor a row: what makes it of the row's largest magnitude, and what divides by it."""


@dataclass(frozen=True)
class Pair:
    """The programs of a group. `saved` are the tensors that the backward reads besides gradients, `statistics` those of
    them that the forward makes for it alone; `gradients` say which of the backward's tensors is an input's gradient."""

    forward: Program
    backward: Program
    saved: tuple[str, ...]
    statistics: tuple[str, ...]
    gradients: dict[str, str]


def pair(group: Group) -> Pair:
    """Both programs, each without what it does not need."""
    statements = parse(group.body, known_names(group))
    plain = {o.name for o in group.outputs if not o.form}
    for s in statements:
        if s.value.has(cast) and not (isinstance(s.value, cast) and s.name in plain):
            raise ValueError(f"{group.name}: `{s.name}` is cast, but not stored as it is")
    derivation = _Derivation(group, statements)
    backward, gradients = derivation.program()
    incoming = {f"d{o.name}" for o in group.outputs}
    saved = tuple(a.tensor for a in backward.loads if a.tensor not in incoming)
    statistics = tuple(a.tensor for a in derivation.statistics if a.tensor in saved)
    return Pair(_forward(group, statements, statistics), backward, saved, statistics, gradients)


def straight(group: Group) -> tuple[Program, Program]:
    """Both programs of a group whose rows are always one block: the backward makes statistics itself."""
    statements = parse(group.body, known_names(group))
    backward, _ = _Derivation(group, statements, keep_statistics=False).program()
    return _forward(group, statements, ()), backward


def _inputs(group: Group) -> tuple[Access, ...]:
    return tuple(Access(i.name, i.kind, i.parts, i.interleaved, i.shared) for i in group.inputs)


def _forward(group: Group, statements: tuple[Statement, ...], statistics: tuple[str, ...]) -> Program:
    made = list(statements)
    stores: list[Store] = []
    for output in group.outputs:
        stores += _stored(output, made)
    stores += [Store(Access(s, "row", form="fp32"), (symbol(s),)) for s in statistics]
    program = Program(
        f"{group.name}_forward",
        group.doc,
        _inputs(group),
        tuple(made),
        tuple(stores),
        constants=group.constants,
        segmented=group.segmented,
    )
    return pruned(program)


def _stored(output: Output, statements: list[Statement]) -> list[Store]:
    """The stores of an output, and before them, if it has one factor a row, the formulae of that."""
    access = Access(output.name, "full", output.parts, output.interleaved, form=output.form)
    values = tuple(map(symbol, output.values))
    if output.form not in ONE_A_ROW:
        return [Store(access, values)]
    factor, quantized = ONE_A_ROW[output.form]
    amax, scale = symbol(f"{output.name}_amax"), symbol(f"{output.name}_scale")
    statements.append(Statement(amax.name, magnitude(*values), "max"))
    statements.append(Statement(scale.name, factor(amax)))
    return [Store(access, (quantized(*values, scale),)), Store(Access(scale.name, "row", form="fp32"), (scale,))]


class _Derivation:
    """Reverse accumulation over a group's formulae.

    Derivatives are sympy's. The gradient of a number of a row is a sum over the row; sums are linear, so factors that
    are themselves numbers of the row leave them, which lets all sums of a group be taken in one reading of it.
    """

    def __init__(self, group: Group, statements: tuple[Statement, ...], *, keep_statistics: bool = True) -> None:
        self.group, self.forward = group, statements
        self.loads = _inputs(group)
        forward = Program("", "", self.loads, statements, ())
        self.ranks = forward.ranks()
        self.by_name = {s.name: s for s in statements}
        self.statistics = self._statistics() if keep_statistics else ()
        stored = {o.name for o in group.outputs if o.form == "" and not o.parts}
        kept = [s.name for s in statements if s.name in stored and isinstance(s.value, cast)]
        self.kept = tuple(Access(name, "full") for name in kept)
        self.incoming = tuple(
            Access(f"d{o.name}", "full", tuple(f"d{p}" for p in o.parts), o.interleaved) for o in group.outputs
        )
        self.ranks |= {value: FULL for a in self.incoming for value in a.values}
        # a value's gradient is the sum of these; with True, each column of a row has its share of it
        self.gradient: dict[str, list[tuple[Expr, bool]]] = {
            v: [(symbol(f"d{v}"), True)] for o in group.outputs for v in o.values
        }
        self.made: dict[str, Statement] = {}
        self.sums: dict[Expr, str] = {}

    def _statistics(self) -> tuple[Access, ...]:
        """Numbers of rows that no backward could have without reading whole rows again."""
        reduced: set[str] = set()
        for s in self.forward:
            if s.reduce or (self.ranks[s.name] == ROW and names(s.value) & reduced):
                reduced.add(s.name)
        return tuple(Access(s.name, "row", form="fp32") for s in self.forward if s.name in reduced)

    def program(self) -> tuple[Program, dict[str, str]]:
        for statement in reversed(self.forward):
            if self.gradient.get(statement.name):
                self._through(statement)
        stores, sums, gradients = self._results()
        available = {a.tensor for a in (*self.statistics, *self.kept)}
        written = {s.value: symbol(s.name) for s in self.forward if not s.reduce and not s.value.is_Symbol}
        again = [s for s in self.forward if s.name not in available]
        made = [replace(s, value=s.value.xreplace(written)) for s in self.made.values()]
        program = Program(
            f"{self.group.name}_backward",
            f"The gradients of {self.group.name}.",
            (*self.loads, *self.kept, *self.statistics, *self.incoming),
            (*again, *made),
            tuple(replace(s, values=tuple(v.xreplace(written) for v in s.values)) for s in stores),
            tuple(replace(s, values=tuple(v.xreplace(written) for v in s.values)) for s in sums),
            self.group.constants,
            self.group.segmented,
        )
        return pruned(program), gradients

    def _through(self, statement: Statement) -> None:
        """Passes a value's gradient on to what it was made of."""
        name, value = statement.name, statement.value
        total = self._total(name)
        spread = bool(statement.reduce) or self.ranks[name] > ROW
        if statement.reduce == "mean":
            total = total / WIDTH
        elif statement.reduce == "max":
            # what is computed anew may be rounded otherwise than it was in the forward
            best = equal(value, symbol(name)) if value.is_Symbol else near(value, symbol(name))
            total = total * best / self._sum_of(best, f"{name}_count")
        for operand in sorted(names(value)):
            if operand in self.ranks:
                slope = sympy.diff(value, symbol(operand))
                self.gradient.setdefault(operand, []).append((total * slope, spread))

    def _total(self, name: str) -> Expr:
        """The gradient of a value, under a name of its own where it is more than one."""
        total = self._gathered(name)
        if total.is_Symbol or total.is_Number:
            return total
        wanted = f"d{name}"
        if any(wanted in a.values for a in self.incoming):
            wanted += "_total"
        return self._named(wanted, total)

    def _gathered(self, name: str) -> Expr:
        if self.ranks[name] != ROW:
            return Add(*(e for e, _ in self.gradient[name]))
        over = [e for e, spread in self.gradient[name] if spread]
        rows = [e for e, spread in self.gradient[name] if not spread]
        return Add(*rows, self._row_sum(Add(*over), f"d{name}")) if over else Add(*rows)

    def _named(self, name: str, value: Expr, reduce: str = "") -> Expr:
        taken, n = name, 1
        while taken in self.made or taken in self.ranks:
            n += 1
            taken = f"{name}_{n}"
        self.made[taken] = Statement(taken, value, reduce)
        self.ranks[taken] = ROW if reduce else rank(value, self.ranks)
        return symbol(taken)

    def _row_sum(self, e: Expr, hint: str) -> Expr:
        """The sum of an expression over a row."""
        out: list[Expr] = []
        for term in Add.make_args(e):
            factors = Mul.make_args(self._spread(term))
            if len(factors) == 1 and factors[0].is_Add:
                out.append(self._row_sum(factors[0], hint))
                continue
            outside = [f for f in factors if rank(f, self.ranks) <= ROW]
            inside = Mul(*(f for f in factors if rank(f, self.ranks) > ROW))
            out.append(Mul(*outside) * (WIDTH if inside == 1 else self._sum_of(inside, hint)))
        return Add(*out)

    def _spread(self, term: Expr) -> Expr:
        """A product, multiplied out where a factor of it has sums of the backward in it."""
        mixed = (f for f in Mul.make_args(term) if f.is_Add and any(self._is_sum(n) for n in names(f)))
        return sympy.expand_mul(term, deep=False) if any(True for _ in mixed) else term

    def _is_sum(self, name: str) -> bool:
        return name in self.made and self.ranks[name] == ROW

    def _sum_of(self, inside: Expr, hint: str) -> Expr:
        """The sum of a product over a row, taken once."""
        statement = self.made.get(str(inside)) or self.by_name.get(str(inside))
        if statement is not None and not statement.reduce and statement.value.is_Add:
            return self._row_sum(statement.value, hint)
        for s in self.forward:
            if s.reduce in ("sum", "mean") and s.value == inside:
                return symbol(s.name) * (WIDTH if s.reduce == "mean" else 1)
        if inside not in self.sums:
            self.sums[inside] = self._named(hint, inside, "sum").name
        return symbol(self.sums[inside])

    def _results(self) -> tuple[list[Store], list[Store], dict[str, str]]:
        """Stores of the inputs' gradients; equal ones are stored once, those that are a result's are there already,
        those that are 0 are none."""
        stores: dict[tuple[Expr, ...], Store] = {}
        for access in self.incoming:
            stores[tuple(map(symbol, access.values))] = Store(access, ())
        sums: list[Store] = []
        gradients: dict[str, str] = {}
        for wanted in (i for i in self.group.inputs if i.gradient):
            values = tuple(self._gathered(v) if v in self.gradient else sympy.Integer(0) for v in wanted.values)
            if all(v.is_zero for v in values):
                continue
            form = "fp32" if wanted.kind in ("row", "vector") else ""
            parts = tuple(f"d{p}" for p in wanted.parts)
            access = Access(f"d{wanted.name}", wanted.kind, parts, wanted.interleaved, wanted.shared, form)
            if wanted.kind == "vector":
                sums.append(Store(access, values))
            else:
                access = stores.setdefault(values, Store(access, values)).access
            gradients[wanted.name] = access.tensor
        return [s for s in stores.values() if s.values], sums, gradients
