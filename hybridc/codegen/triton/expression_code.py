"""Expressions of sympy as Triton's text."""

from __future__ import annotations

from collections.abc import Callable

import sympy
from sympy import Expr

from hybridc.codegen.triton.functions import TRITON
from hybridc.ir.emit import ADD, ATOM, MUL, Code, lit

Rank = Callable[[Expr], int]
"""How much of a tile an expression takes: a number, a row's number, a column's, a whole tile."""


def text(expression: Expr, rank: Rank, likes: str) -> str:
    """The expression. Factors of a product go from small to large, so that numbers of rows are multiplied before they
    meet whole tiles. `likes` is the pointer whose dtype `cast` rounds to."""
    return _Writer(rank, likes).code(expression).text


class _Writer:
    """Writes expressions with no more parentheses than they need."""

    def __init__(self, rank: Rank, likes: str) -> None:
        self.rank, self.likes = rank, likes

    def code(self, e: Expr) -> Code:
        if e.is_Symbol:
            return Code(e.name)
        if e.is_Number:
            return Code(_number(e), ATOM if e >= 0 else ADD)
        if e.is_Add:
            return self._sum(e)
        if e.is_Mul or e.is_Pow:
            return self._product(e)
        if type(e).__name__ == "cast":
            return Code(f"{self.code(e.args[0]).at(ATOM)}.to({self.likes}.dtype.element_ty).to(tl.float32)")
        if type(e).__name__ == "fixed":
            return self.code(e.args[0])
        return Code(TRITON[type(e).__name__].format(*(self.code(a).text for a in e.args)))

    def _sum(self, e: Expr) -> Code:
        terms: list[tuple[bool, int, str]] = []
        for term in e.args:
            negative = bool(term.could_extract_minus_sign())
            terms.append((negative, -self.rank(term), self.code(-term if negative else term).at(MUL)))
        terms.sort()
        out = ("-" if terms[0][0] else "") + terms[0][2]
        return Code(out + "".join(f" {'-' if minus else '+'} {term}" for minus, _, term in terms[1:]), ADD)

    def _product(self, e: Expr) -> Code:
        coefficient, rest = e.as_coeff_Mul()
        over: list[tuple[int, str]] = []
        under: list[tuple[int, str]] = []
        for factor in sympy.Mul.make_args(rest):
            if factor.is_number:
                coefficient *= factor.evalf(20)
                continue
            base, power = factor.args if factor.is_Pow else (factor, sympy.Integer(1))
            if not power.is_Integer:
                raise ValueError(f"{factor} has an exponent that is not a whole number")
            side = over if power > 0 else under
            side += [(self.rank(base), self.code(base).at(ATOM))] * abs(int(power))
        negative, size = bool(coefficient < 0), abs(coefficient)
        if size.is_Rational and size.q & (size.q - 1):
            under.append((0, str(size.q)))
            size = sympy.Integer(size.p)
        if size != 1 or not over:
            over.append((-1, _number(size)))
        return Code(("-" if negative else "") + _chain(sorted(over), sorted(under)), MUL)


def _number(e: Expr) -> str:
    return str(e) if e.is_Integer else lit(float(e))


def _chain(over: list[tuple[int, str]], under: list[tuple[int, str]]) -> str:
    """`a * b / c * d`: a divisor stands behind the factors that are no larger than it."""
    out, rest = over[0][1], over[1:]
    while under or rest:
        if under and (not rest or under[0][0] < rest[0][0]):
            out += f" / {under.pop(0)[1]}"
        else:
            out += f" * {rest.pop(0)[1]}"
    return out
