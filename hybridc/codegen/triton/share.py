"""Common subexpressions of a program become values of their own, and values read once go where they are read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import sympy
from sympy import Expr, Symbol

from hybridc.codegen.triton.functions import positive, relu, symbol
from hybridc.codegen.triton.program import NUMBER, Program, Statement, Store, names, ordered, rank


def shared(program: Program) -> Program:
    """The same computation in fewer operations."""
    return _common(_factored(_inlined(program)))


def _mapped(program: Program, values: Iterator[Expr]) -> Program:
    """The program with other expressions, in the order of its statements, stores and sums."""

    def stores(old: tuple[Store, ...]) -> tuple[Store, ...]:
        return tuple(replace(s, values=tuple(next(values) for _ in s.values)) for s in old)

    statements = tuple(replace(s, value=next(values)) for s in program.statements)
    return replace(program, statements=statements, stores=stores(program.stores), sums=stores(program.sums))


def _values(program: Program) -> list[Expr]:
    return [*(s.value for s in program.statements), *program.roots()]


def _inlined(program: Program) -> Program:
    """Gradients that are read once need no name, nor do numbers."""
    while True:
        ranks = program.ranks()
        uses: Counter[str] = Counter()
        for e in _values(program):
            for used in e.atoms(Symbol):
                uses[used.name] += int(e.count(used))
        once = {
            symbol(s.name): s.value
            for s in program.statements
            if not s.reduce and (ranks[s.name] == NUMBER or (uses[s.name] == 1 and s.name.startswith("d")))
        }
        chosen = {k: v for k, v in once.items() if not any(symbol(n) in once for n in names(v))}
        if not chosen:
            return program
        kept = tuple(s for s in program.statements if symbol(s.name) not in chosen)
        program = replace(program, statements=kept)
        program = _mapped(program, iter([e.xreplace(chosen) for e in _values(program)]))


def _factored(program: Program) -> Program:
    """Common factors in front of sums; a step beside a ramp is no factor."""
    return _mapped(program, iter([_without_steps(sympy.factor_terms(e)) for e in _values(program)]))


def _without_steps(e: Expr) -> Expr:
    """relu(x) positive(x) is relu(x)."""
    if not e.has(positive):
        return e

    def product(e: Expr) -> Expr:
        ramps = {f.args[0] for f in e.args if isinstance(f, relu)}
        return sympy.Mul(*(f for f in e.args if not (isinstance(f, positive) and f.args[0] in ramps)))

    return e.replace(lambda e: e.is_Mul, product)


def _common(program: Program) -> Program:
    values = _values(program)
    taken = {v for a in program.loads for v in (a.tensor, *a.values)} | {n for e in values for n in names(e)}
    taken |= {s.name for s in program.statements}
    fresh = (symbol(f"common_{n}") for n in itertools.count(1))
    found, reduced = sympy.cse(values, symbols=fresh, order="canonical", list=True)
    found, reduced = _without_powers(found, reduced, fresh)
    program = _mapped(program, iter(reduced))
    ranks = {n: r for n, r in program.ranks().items() if not n.startswith("common_")}
    rename: dict[Expr, Expr] = {}
    made: list[Statement] = []
    count = 0
    for name, value in found:
        value = value.xreplace(rename)
        ranks[name.name] = rank(value, ranks)
        if ranks[name.name] == NUMBER:
            rename[name] = value
            continue
        wanted = _title(value)
        while not wanted or wanted in taken:
            count += 1
            wanted = f"t{count}"
        taken.add(wanted)
        rename[name] = symbol(wanted)
        ranks[wanted] = ranks[name.name]
        made.append(Statement(wanted, value))
    named = {s.value: symbol(s.name) for s in made}  # sympy.cse misses some that stand in longer sums
    program = _mapped(program, iter([e.xreplace(rename).xreplace(named) for e in _values(program)]))
    return replace(program, statements=ordered((*made, *program.statements), program.roots()))


def _without_powers(
    found: list[tuple[Expr, Expr]], values: list[Expr], fresh: Iterator[Expr]
) -> tuple[list[tuple[Expr, Expr]], list[Expr]]:
    """The results of sympy.cse, with names for what whole powers are of."""
    made: dict[Expr, Expr] = {}
    out: list[tuple[Expr, Expr]] = []

    def named(e: Expr) -> Expr:
        powers = [p for p in e.atoms(sympy.Pow) if not p.base.is_Symbol and not p.is_number and p.exp > 1]
        for power in sorted(powers, key=sympy.count_ops):
            base = power.base.xreplace(made)
            if base not in made:
                made[base] = next(fresh)
                out.append((made[base], base))
        return e.xreplace(made)

    for name, value in found:
        value = named(value)
        out.append((name, value))
    return out, [named(e) for e in values]


def _title(value: Expr) -> str:
    """`sigmoid_gate` for sigmoid(gate), "" for what has no such name."""
    if value.is_Function and len(value.args) == 1 and value.args[0].is_Symbol:
        return f"{type(value).__name__}_{value.args[0].name}"
    return ""
