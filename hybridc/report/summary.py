"""What a report shows, as data: the layer pattern with its stages, the rows of the tables, the totals."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from hybridc.ir.folding import runs
from hybridc.ir.graph import Block, Module
from hybridc.passes.analysis.cost import Row, block_table, flops_per_token, parameter_count
from hybridc.passes.analysis.memory import activation_bytes, cache_bytes, weight_bytes

GLUE = ("add", "scale", "concat", "mul")
"""Ops without parameters that join others; the tables show them as one row a block."""


@dataclass(frozen=True)
class OpRow:
    """A line of the table of ops: one op of a block, in one layer."""

    name: str
    kind: str
    parameters: int
    flops_per_token: float
    activation_bytes: float
    cache_bytes: float


@dataclass(frozen=True)
class BlockRow:
    """A line of the table of blocks, and the lines of its ops.

    `parameters` are those of one weight set and `all_parameters` those of all `sets`; FLOPs and bytes are one layer's,
    the `all_` ones those of all `layers`.
    """

    name: str
    title: str
    layers: int
    sets: int
    parameters: int
    all_parameters: int
    flops_per_token: float
    all_flops: float
    activation_bytes: float
    all_activations: float
    cache_bytes: float
    all_caches: float
    ops: tuple[OpRow, ...]


@dataclass(frozen=True)
class Run:
    """`unit`, block names in order, `count` times."""

    unit: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class Summary:
    """A module's report for `batch` rows of `seq` tokens. `stages` are the pipeline stages, each a list of runs."""

    module: Module
    batch: int
    seq: int
    stages: tuple[tuple[Run, ...], ...]
    blocks: tuple[BlockRow, ...]
    parameters: int
    flops_per_token: float
    weight_bytes: float
    activation_bytes: float
    cache_bytes: float


def summarise(module: Module, *, batch: int = 1, seq: int = 2048) -> Summary:
    """The report of a typed module. FLOPs are forward, bytes those of the module's dtype without recomputation."""
    rows = block_table(module, batch=batch, seq=seq)
    return Summary(
        module=module,
        batch=batch,
        seq=seq,
        stages=tuple(
            tuple(Run(tuple(unit), count) for unit, count in runs([layer.block for layer in stage]))
            for _, stage in itertools.groupby(module.layers, key=lambda layer: layer.stage)
        ),
        blocks=tuple(_block(r, [o for o in rows if o.block == r.block and o.op]) for r in rows if not r.op),
        parameters=parameter_count(module),
        flops_per_token=flops_per_token(module, seq),
        weight_bytes=weight_bytes(module),
        activation_bytes=activation_bytes(module, batch=batch, seq=seq),
        cache_bytes=cache_bytes(module, batch=batch, length=seq),
    )


def _block(total: Row, ops: list[Row]) -> BlockRow:
    shown = [_op(o) for o in ops if o.kind not in GLUE]
    glue = [o for o in ops if o.kind in GLUE]
    if glue:
        shown.append(
            OpRow(
                ", ".join(dict.fromkeys(o.kind for o in glue)),
                "glue",
                0,
                sum(o.flops_per_token for o in glue),
                sum(o.activation_bytes for o in glue),
                sum(o.cache_bytes for o in glue),
            )
        )
    return BlockRow(
        name=total.block,
        title=total.kind,
        layers=total.count,
        sets=total.sets,
        parameters=total.parameters,
        all_parameters=total.all_parameters,
        flops_per_token=total.flops_per_token,
        all_flops=total.flops_per_token * total.count,
        activation_bytes=total.activation_bytes,
        all_activations=total.activation_bytes * total.count,
        cache_bytes=total.cache_bytes,
        all_caches=total.cache_bytes * total.count,
        ops=tuple(shown),
    )


def _op(row: Row) -> OpRow:
    return OpRow(row.op, row.kind, row.parameters, row.flops_per_token, row.activation_bytes, row.cache_bytes)


def mixers(block: Block) -> tuple[tuple[str, str], ...]:
    """(name, kind) of a block's ops that have parameters and are no norms, in order: what the block is about."""
    found = [(n.path, type(n.op).kind) for n in block.nodes if n.path and not type(n.op).kind.endswith("norm")]
    return tuple(found) or tuple((n.path, type(n.op).kind) for n in block.nodes if n.path)


def letters(names: list[str]) -> dict[str, str]:
    """A short sign for each block: the capitals and digits of its name (`SsmMoe` -> `SM`), numbered where two meet."""
    out: dict[str, str] = {}
    for name in names:
        capitals = "".join(re.findall(r"[A-Z]|\d+", name))[:3] or name[0].upper()
        sign, n = capitals, 1
        while sign in out.values():
            n += 1
            sign = f"{capitals}{n}"
        out[name] = sign
    return out


def count(number: float) -> str:
    """A number with thousands separators: `1,235,814,400`."""
    return f"{round(number):,}"


def size(number: float) -> str:
    """Bytes in the largest binary unit in which they are 1 or more: `1.5 MiB`; nothing for 0."""
    if not number:
        return "-"
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"


def short(number: float) -> str:
    """A number to three digits with a unit: `1.24 B` for 1,235,814,400; below 10,000 in full."""
    if number < 10_000:
        return count(number)
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number / 1e3:.3g} k"
