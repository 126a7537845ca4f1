"""What `hybridc ops` prints."""

from __future__ import annotations

import textwrap

from hybridc.console import wrong
from hybridc.diagnostics import did_you_mean
from hybridc.ir.describe import WIDTH, Argument, all_names, describe, example, operand_widths, signature
from hybridc.report.backends import DTYPE, table


def listing() -> str:
    """All ops: signature, and the first sentence of what it does."""
    lines = []
    for name in all_names():
        summary = " ".join(describe(name).doc.partition("\n\n")[0].split())
        lines += textwrap.wrap(signature(name), 96, subsequent_indent=" " * (len(name) + 1), break_long_words=False)
        lines += textwrap.wrap(summary, 92, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def page(name: str, *, width: int) -> str:
    """Everything about one op: arguments, shapes, parameters, backends. Ends the command for a name that is none."""
    if name not in all_names():
        wrong(f"there is no op `{name}`; {did_you_mean(name, all_names())}")
    d = describe(name)
    width = min(max(width, 60), 110)
    parts = ["\n".join(textwrap.wrap(d.signature, width, subsequent_indent=" " * (len(name) + 1)))]
    parts.append("\n".join(textwrap.fill(" ".join(p.split()), width) for p in d.doc.split("\n\n")))
    if d.arguments:
        parts.append("Arguments\n" + _arguments(d.arguments, width))
    if d.result:
        operands = " and ".join(["..." if o == "..." else o for o in d.operands])
        parts.append(f"Shapes, for {d.example}\n  {operands} [B, S, {WIDTH}] -> {d.result}")
    if d.parameters:
        wide = max(len(n) for n, _ in d.parameters)
        lines = [f"  {n:{wide}s}  [{', '.join(map(str, shape))}]" for n, shape in d.parameters]
        parts.append("Parameters\n" + "\n".join(lines))
    op, _ = example(name)
    if op.record:
        parts.append("Stands inside of another op's arguments.")
    else:
        parts.append("\n".join([f"Backends, for {d.example} in {DTYPE}", *table(op, operand_widths(op), width)]))
    return "\n\n".join(parts) + "\n"


def _arguments(arguments: tuple[Argument, ...], width: int) -> str:
    rows = [(a.name, a.type, f"= {a.default}" if a.default else "required", a.doc) for a in arguments]
    wide = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = []
    for row in rows:
        head = "  " + "  ".join(f"{cell:{w}s}" for cell, w in zip(row, wide, strict=False)) + "  "
        lines.append(
            textwrap.fill(row[3], max(width, len(head) + 30), initial_indent=head, subsequent_indent=" " * len(head))
        )
    return "\n".join(lines)
