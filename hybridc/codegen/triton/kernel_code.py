"""A program as the text of one Triton kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import sympy
from sympy import Expr

from hybridc.codegen.triton.expression_code import text
from hybridc.codegen.triton.functions import WIDTH as ALL
from hybridc.codegen.triton.functions import cast, rsqrt, symbol
from hybridc.codegen.triton.group import BLOCK
from hybridc.codegen.triton.program import FULL, ROW, VECTOR, Access, Program, Statement, Store, names, rank
from hybridc.ir.emit import filled

LINE = 116
"""Lines are kept to about this many columns."""

REGISTERS = 58_000
"""Numbers that the tiles of one program may have together: a multiprocessor has registers for 65,536."""

START = {"sum": "0.0", "mean": "0.0", "max": 'float("-inf")'}


def widest(program: Program) -> int:
    """The widest block for which the tiles that are alive together fit into registers: what is read, what is summed,
    and, as measured on compiled kernels, half of what is computed."""
    ranks = program.ranks()
    tiles = sum(len(a.values) for a in program.loads if a.kind in ("full", "vector"))
    tiles += len(program.sums) + sum(ranks[s.name] == FULL for s in program.statements if not s.reduce) // 2 + 1
    size = 16384
    while size * tiles > REGISTERS:
        size //= 2
    return size


def parameters(program: Program) -> list[str]:
    """The arguments of a kernel that are no constants: a pointer and the stride of its rows for each tensor."""
    out: list[str] = []
    for access in accesses(program):
        out.append(f"{access.tensor}_ptr")
        if access.kind in ("full", "block"):
            out.append(f"{access.tensor}_stride")
        if access.form == "e4m3_block":
            out.append(f"{access.tensor}_scale_ptr")
    return [*out, *(["step"] if program.segmented else []), "rows"]


def accesses(program: Program) -> list[Access]:
    """The tensors of a program: what it reads, what it writes."""
    return [*program.loads, *(s.access for s in program.stores), *(s.access for s in program.sums)]


def kernel(program: Program) -> str:
    """The kernel's text."""
    return _Kernel(program).text()


def framed(name: str, doc: str, arguments: list[str], constants: Iterable[str], body: Iterable[str]) -> str:
    """A kernel's definition around its body."""
    fixed = [f"{c}: tl.constexpr" for c in ("WIDTH", *constants, "ROWS", "BLOCK")]
    taken = filled([*arguments, *fixed], LINE - 4)
    lines = ["@triton.jit", f"def {name}(", *(f"    {line}" for line in taken), "):"]
    return "\n".join([*lines, f'    """{doc}"""', *(f"    {line}" for line in body)])


@dataclass
class _Kernel:
    """A kernel in the making.

    A program of the grid takes a tile of rows; where columns are summed over rows, one tile after another. Rows are
    read in blocks of columns, once for each depth of sums: what depends on no sum, on sums of that, and so on.
    """

    program: Program

    def __post_init__(self) -> None:
        self.ranks = self.program.ranks()
        self.columns = not self.program.whole_rows and not self.program.segmented
        self.statements = {s.name: s for s in self.program.statements}
        self.depths: dict[str, int] = {}
        for s in self.program.statements:
            depth = max((self.depths.get(n, 0) for n in names(s.value)), default=0)
            self.depths[s.name] = depth + bool(s.reduce)

    def write(self, e: Expr, name: str = "") -> str:
        return text(e, lambda part: rank(part, self.ranks), f"{name}_ptr")

    def text(self) -> str:
        program = self.program
        return framed(program.name, program.doc, parameters(program), program.constants, self.body())

    def body(self) -> Iterator[str]:
        if self.program.segmented:
            yield "segment = tl.program_id(1)"
            if self.by_segment():
                yield "segments = tl.num_programs(1)"
        if self.columns:
            yield "col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]"
            yield "there = col < WIDTH"
        if not self.program.sums:
            yield "row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]"
            yield from self.tile()
            return
        for store in self.program.sums:
            stem = store.access.tensor
            yield f"{stem}_sums = {stem}_ptr + {self.share()} * WIDTH"
            yield f"{stem} = tl.zeros([1, BLOCK], tl.float32)"
        yield "for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):"
        yield "    row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]"
        yield from (f"    {line}" for line in self.tile())
        if not self.columns:
            yield "if BLOCK >= WIDTH:"
            yield "    col = tl.arange(0, BLOCK)[None, :]"
        indent, there = ("", "there") if self.columns else ("    ", "col < WIDTH")
        for store in self.program.sums:
            stem = store.access.tensor
            yield f"{indent}tl.store({stem}_sums + col, {stem}, mask={there})"

    def share(self) -> str:
        """Which of the partial sums are the program's own."""
        if self.program.segmented:
            return "(tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment)"
        return "tl.program_id(0).to(tl.int64)"

    def by_segment(self) -> bool:
        return any(a.kind == "row" and not a.shared for a in accesses(self.program))

    def tile(self) -> Iterator[str]:
        """What is done with a tile of rows."""
        yield "live = row < rows"
        tensors = [*self.program.loads, *(s.access for s in self.program.stores)]
        for access in tensors:
            if access.kind in ("full", "block"):
                offset = ""
                if self.program.segmented and not access.shared:
                    offset = " + segment * step"
                yield f"{access.tensor}_row = {access.tensor}_ptr + row * {access.tensor}_stride{offset}"
                if access.form == "e4m3_block":
                    scale = f"{access.tensor}_scale"
                    yield f"{scale}_row = {scale}_ptr + row * tl.cdiv(WIDTH, {BLOCK})"
        for access in self.program.loads:
            if access.kind == "row":
                at = f"{access.tensor}_ptr + {self.row_index(access)}"
                yield f"{access.tensor} = tl.load({at}, mask=live, other=0.0).to(tl.float32)"
        yield from self.numbers(0)
        for depth in range(1, max(self.depths.values(), default=0) + 1):
            taken = [s for s in self.program.statements if s.reduce and self.depths[s.name] == depth]
            yield from (f"{s.name} = tl.full([ROWS, 1], {START[s.reduce]}, tl.float32)" for s in taken)
            yield from self.columnwise(depth - 1, [s.value for s in taken], map(self.reduction, taken))
            yield from (f"{s.name} = {s.name} / WIDTH" for s in taken if s.reduce == "mean")
            yield from self.numbers(depth)
        last = [s for s in self.program.stores if s.access.kind != "row"]
        if last or self.program.sums:
            values = [v for s in (*last, *self.program.sums) for v in s.values]
            written = [line for s in last for line in self.store(s)]
            written += [line for s in self.program.sums for line in self.sum(s)]
            yield from self.columnwise(max(self.depths.values(), default=0), values, written)
        for store in self.program.stores:
            if store.access.kind == "row":
                at = f"{store.access.tensor}_ptr + {self.row_index(store.access)}"
                yield f"tl.store({at}, {self.write(store.values[0])}, mask=live)"

    def row_index(self, access: Access) -> str:
        return "row * segments + segment" if self.program.segmented and not access.shared else "row"

    def numbers(self, depth: int) -> Iterator[str]:
        """Formulae of numbers of rows that are known at this depth."""
        for s in self.program.statements:
            if self.ranks[s.name] <= ROW and not s.reduce and self.depths[s.name] == depth:
                yield f"{s.name} = {self.write(s.value, s.name)}"

    def columnwise(self, depth: int, values: list[Expr], last: Iterable[str]) -> Iterator[str]:
        """One reading of the columns: loads, the formulae that the values need, and what is done with these."""
        needed: set[str] = set()
        stack = [n for e in values for n in names(e)]
        while stack:
            name = stack.pop()
            if name not in needed and self.ranks.get(name, 0) > ROW:
                needed.add(name)
                if name in self.statements:
                    stack += names(self.statements[name].value)
        indent = "" if self.columns else "    "
        if self.columns:
            yield "inside = live & there"
        else:
            yield "for start in range(0, WIDTH, BLOCK):"
            yield "    col = start + tl.arange(0, BLOCK)[None, :]"
            if any(a.kind == "vector" for a in self.loaded(needed)) or self.program.sums:
                yield "    there = col < WIDTH"
                yield "    inside = live & there"
            else:
                yield "    inside = live & (col < WIDTH)"
        for access in self.loaded(needed):
            yield from (f"{indent}{line}" for line in self.load(access))
        for s in self.program.statements:
            if s.name in needed:
                yield f"{indent}{s.name} = {self.write(s.value, s.name)}"
        yield from (f"{indent}{line}" for line in last)

    def loaded(self, needed: set[str]) -> list[Access]:
        return [a for a in self.program.loads if a.kind != "row" and needed & set(a.values)]

    def load(self, access: Access) -> Iterator[str]:
        name = access.tensor
        if access.kind == "vector":
            offset = " + segment * WIDTH" if self.program.segmented and not access.shared else ""
            yield f"{name} = tl.load({name}_ptr{offset} + col, mask=there, other=0.0).to(tl.float32)"
        elif access.kind == "block":
            yield f"{name} = tl.load({name}_row + col // {BLOCK}, mask=inside, other=0.0).to(tl.float32)"
        elif access.interleaved:
            start = "tl.program_id(1) * BLOCK" if self.columns else "start"
            yield f"{', '.join(access.parts)} = load_pairs({name}_row, {start}, WIDTH, live, ROWS, BLOCK)"
        else:
            for i, value in enumerate(access.values):
                yield f"{value} = tl.load({name}_row + {_column(i)}, mask=inside, other=0.0).to(tl.float32)"

    def store(self, store: Store) -> Iterator[str]:
        access = store.access
        name = access.tensor
        named = not access.form
        for value, e in zip(access.values, store.values, strict=True):
            if named and not e.is_Symbol:
                yield f"{value} = {self.tiled(e)}"
        pairs = zip(access.values, store.values, strict=True)
        values = [v if named and not e.is_Symbol else self.write(e) for v, e in pairs]
        start = "tl.program_id(1) * BLOCK" if self.columns else "start"
        if access.form == "e4m3_block":
            yield f"quantized, scale = to_e4m3_blocks({values[0]}, inside, ROWS, BLOCK)"
            yield f"tl.store({name}_row + col, quantized, mask=inside)"
            yield f"block = {start} // {BLOCK} + tl.arange(0, BLOCK // {BLOCK})[None, :]"
            yield f"tl.store({name}_scale_row + block, scale, mask=live & (block < tl.cdiv(WIDTH, {BLOCK})))"
        elif access.interleaved:
            yield f"store_pairs({name}_row, {', '.join(values)}, {start}, WIDTH, live, ROWS, BLOCK)"
        else:
            for i, value in enumerate(values):
                yield f"tl.store({name}_row + {_column(i)}, {value}, mask=inside)"

    def reduction(self, s: Statement) -> str:
        value = self.tiled(s.value)
        if s.reduce == "max":
            value = f'tl.max(tl.where(inside, {value}, float("-inf")), 1, keep_dims=True)'
            return f"{s.name} = tl.maximum({s.name}, {value})"
        return f"{s.name} += tl.sum({value if self.vanishes(s.value) else self.masked(value)}, 1, keep_dims=True)"

    def sum(self, store: Store) -> Iterator[str]:
        name, value = store.access.tensor, self.tiled(store.values[0])
        if not self.vanishes(store.values[0]):
            value = self.masked(value)
        total = f"tl.sum({value}, 0, keep_dims=True)"
        if self.columns:
            yield f"{name} += {total}"
        else:
            yield f"{name}_tile = {total}"
            yield f"{name} = add_columns({name}, {name}_tile, {name}_sums + col, there, BLOCK >= WIDTH)"

    def tiled(self, e: Expr) -> str:
        """The expression; a number as a tile."""
        value = self.write(e)
        return value if rank(e, self.ranks) else f"tl.full([ROWS, BLOCK], {value}, tl.float32)"

    def masked(self, value: str) -> str:
        return f"tl.where(inside, {value}, 0.0)"

    def vanishes(self, e: Expr) -> bool:
        """Whether an expression is 0 where nothing was read: what is read counts as 0 there."""
        while True:
            made = {symbol(n): self.statements[n].value for n in names(e) if self.is_made(n)}
            if not made:
                break
            e = e.xreplace(made)
        divided = any(p.exp.is_negative and p.base != ALL for p in e.atoms(sympy.Pow))
        if divided or e.has(sympy.exp, sympy.log, rsqrt):
            return False  # 0 times what may be infinite there
        if any(n in self.statements for n in names(e) if self.ranks.get(n, 0) == ROW):
            return False
        zero = {symbol(n): 0 for n in names(e) if self.ranks.get(n, 0) in (VECTOR, FULL)}
        return bool(e.replace(cast, lambda inner: inner).subs(zero) == 0)

    def is_made(self, name: str) -> bool:
        return name in self.statements and self.ranks[name] > ROW


def _column(part: int) -> str:
    return "col" if part == 0 else "WIDTH + col" if part == 1 else f"{part} * WIDTH + col"
