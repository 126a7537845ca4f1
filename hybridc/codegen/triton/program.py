"""What a kernel does, before it is text: loads, formulae in order, stores, and sums over rows."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import sympy
from sympy import Expr

from hybridc.codegen.triton.functions import FUNCTIONS, REDUCTIONS, WIDTH, symbol
from hybridc.codegen.triton.group import Group, Kind

NUMBER, ROW, VECTOR, FULL = range(4)
"""Ranks of values: one for all, one a row, one a column, one for each row and column."""

RANKS: dict[Kind, int] = {"full": FULL, "vector": VECTOR, "row": ROW, "block": FULL}


@dataclass(frozen=True)
class Access:
    """A tensor that a kernel reads or writes, and the values that it holds: see `hybridc.codegen.triton.group.Input`.

    `form` is "" for what a full tensor of the group's dtype is, "fp32" for statistics, or a quantized form.
    """

    tensor: str
    kind: Kind
    parts: tuple[str, ...] = ()
    interleaved: bool = False
    shared: bool = False
    form: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        return self.parts or (self.tensor,)


@dataclass(frozen=True)
class Statement:
    """`name = value`, or with `reduce` the sum, mean or max of `value` over the columns of a row."""

    name: str
    value: Expr
    reduce: str = ""


@dataclass(frozen=True)
class Store:
    """Values into a tensor, one a part. Into a `vector` go sums over rows."""

    access: Access
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Program:
    """One kernel. Statements are in an order in which they can be computed; `sums` are gradients of vectors."""

    name: str
    doc: str
    loads: tuple[Access, ...]
    statements: tuple[Statement, ...]
    stores: tuple[Store, ...]
    sums: tuple[Store, ...] = ()
    constants: tuple[str, ...] = ()
    segmented: bool = False

    def ranks(self) -> dict[str, int]:
        """The rank of each value by name."""
        out = {value: RANKS[a.kind] for a in self.loads for value in a.values}
        for statement in self.statements:
            out[statement.name] = ROW if statement.reduce else rank(statement.value, out)
        return out

    def roots(self) -> list[Expr]:
        """What is stored."""
        return [value for store in (*self.stores, *self.sums) for value in store.values]

    @property
    def whole_rows(self) -> bool:
        """Whether some value is known only when a whole row has been read."""
        return any(s.reduce for s in self.statements)


def names(e: Expr) -> set[str]:
    """The names of the values in an expression."""
    return {s.name for s in e.free_symbols}


def rank(e: Expr, ranks: Mapping[str, int]) -> int:
    """The rank of an expression: numbers of rows and of columns together make a whole tile."""
    found = {ranks.get(n, NUMBER) for n in names(e)}
    return FULL if FULL in found or {ROW, VECTOR} <= found else max(found, default=NUMBER)


def parse(body: str, known: Iterable[str]) -> tuple[Statement, ...]:
    """The formulae of a group's body. Raises ValueError for what is no formula, with the line."""
    defined = {name: symbol(name) for name in known}
    out: list[Statement] = []
    for line in filter(None, map(str.strip, body.splitlines())):
        name, _, right = line.partition(" = ")
        node = ast.parse(right, mode="eval").body
        reduce = ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REDUCTIONS:
            reduce, node = node.func.id, node.args[0]
        try:
            out.append(Statement(name, _expression(node, defined), reduce))
        except KeyError as error:
            raise ValueError(f"`{line}`: {error.args[0]} is not known") from error
        defined[name] = symbol(name)
    return tuple(out)


def _expression(node: ast.expr, defined: Mapping[str, Expr]) -> Expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return sympy.Integer(node.value) if isinstance(node.value, int) else sympy.Float(node.value)
    if isinstance(node, ast.Name):
        return defined[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_expression(node.operand, defined)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return FUNCTIONS[node.func.id](*(_expression(a, defined) for a in node.args))
    if isinstance(node, ast.BinOp):
        left, right = _expression(node.left, defined), _expression(node.right, defined)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return left / right
        if isinstance(node.op, ast.Pow):
            return left**right
    raise ValueError(f"`{ast.unparse(node)}` is no part of a formula")


def ordered(statements: Iterable[Statement], roots: Iterable[Expr]) -> tuple[Statement, ...]:
    """The statements that the roots need, each behind those that it needs."""
    by_name = {s.name: s for s in statements}
    out: dict[str, Statement] = {}

    def visit(e: Expr) -> None:
        for name in sorted(names(e)):
            if name in by_name and name not in out:
                visit(by_name[name].value)
                out[name] = by_name[name]

    position = {name: i for i, name in enumerate(by_name)}
    needed: set[str] = set()
    stack = [n for e in roots for n in names(e)]
    while stack:
        name = stack.pop()
        if name in by_name and name not in needed:
            needed.add(name)
            stack += names(by_name[name].value)
    for name in sorted(needed, key=position.__getitem__):
        visit(symbol(name))
    return tuple(out.values())


def pruned(program: Program) -> Program:
    """The program without what no store needs."""
    statements = ordered(program.statements, program.roots())
    used = {n for e in (*program.roots(), *(s.value for s in statements)) for n in names(e)}
    loads = tuple(a for a in program.loads if used & set(a.values))
    constants = tuple(c for c in program.constants if c in used)
    return replace(program, loads=loads, statements=statements, constants=constants)


def known_names(group: Group) -> list[str]:
    """The names that a group's body starts from."""
    return [*(v for i in group.inputs for v in i.values), *group.constants, WIDTH.name]
