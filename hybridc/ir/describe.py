"""What `hybridc ops` says of an op: its signature, arguments, an example's shapes, and what runs it."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

from hybridc.ir.attrs import show
from hybridc.ir.ops import ALIASES, OPS, Check, Op, fields, find

WIDTH = 512
"""Width of the operand in examples."""

SAMPLES: dict[str, object] = {
    "heads": 8,
    "blocks": 8,
    "out": 256,
    "hidden": 1024,
    "experts": 8,
    "top_k": 2,
    "vocab": 32000,
    "dim": 512,
}
"""Values that examples give to required arguments; other numbers are 0.5."""


@dataclass(frozen=True)
class Argument:
    """An argument of an op: its type, its default as a spec writes it ("" when it must be given), its meaning."""

    name: str
    type: str
    default: str
    doc: str


@dataclass(frozen=True)
class Description:
    """An op as a user sees it. `parameters` are names and shapes for the call in `example` on an operand of WIDTH."""

    name: str
    signature: str
    doc: str
    arguments: tuple[Argument, ...]
    operands: tuple[str, ...]
    example: str
    result: str
    parameters: tuple[tuple[str, tuple[int, ...]], ...]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.metadata["required"]:
        return ""
    return field.metadata["derived"] or show(field.default)


def arguments(name: str) -> tuple[Argument, ...]:
    """The arguments of an op or alias in positional order."""
    found = find(name)
    if found is None:
        raise KeyError(name)
    kind, preset = found
    return tuple(
        Argument(
            n, str(f.metadata["type"]) + ("|none" if f.metadata["optional"] else ""), _default(f), f.metadata["doc"]
        )
        for n, f in fields(kind).items()
        if n not in preset
    )


def signature(name: str) -> str:
    """`attention(heads, kv_heads=heads, ...)`."""
    extra = [f"{o}=" for o in find_class(name).operands[1:]]
    shown = [a.name + (f"={a.default}" if a.default else "") for a in arguments(name)]
    return f"{name}({', '.join(extra + shown)})"


def find_class(name: str) -> type[Op]:
    """The class of an op or alias. Raises KeyError for a name that is none."""
    found = find(name)
    if found is None:
        raise KeyError(name)
    return found[0]


def example(name: str) -> tuple[Op, dict[str, object]]:
    """An op with values for the arguments that it requires, and these; resolved for operands of WIDTH. Raises KeyError
    for a name that is none."""
    kind = find_class(name)
    _, preset = find(name) or (kind, {})
    required = {n: SAMPLES.get(n, 0.5) for n, f in fields(kind).items() if f.metadata["required"] and n not in preset}
    if "dim" in fields(kind):
        required["dim"] = SAMPLES["dim"]
    known = fields(kind)
    op = kind(**{known[k].name: v for k, v in {**preset, **required}.items()})
    return (op if kind.record else op.resolve(operand_widths(op), Check())), required


def operand_widths(op: Op) -> tuple[int, ...]:
    """Widths of an example's operands."""
    return (WIDTH,) * max(1, len(op.operands))


def describe(name: str) -> Description:
    """Everything about an op. Raises KeyError for a name that is none."""
    kind = find_class(name)
    op, required = example(name)
    _, preset = find(name) or (kind, {})
    known, widths = fields(kind), operand_widths(op)
    parameters = () if kind.record else tuple((p.name, p.shape) for p in op.params(widths))
    doc = inspect.cleandoc(kind.__doc__ or "")
    if name in ALIASES:
        doc = f"{show(kind(**{known[k].name: v for k, v in {**preset, **required}.items()}))}. {doc}"
    shown = f"{name}({', '.join(f'{k}={show(v)}' for k, v in required.items())})"
    result = "" if kind.record else f"[B, S, {op.width(widths)}]"
    return Description(name, signature(name), doc, arguments(name), kind.operands, shown, result, parameters)


def all_names() -> list[str]:
    """Ops, aliases and records in alphabetical order."""
    return sorted([*(k for k, c in OPS.items() if not c.inserted), *ALIASES])
