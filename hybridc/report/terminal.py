"""A report as text: the layer pattern as coloured cells, a table of blocks and a table of ops."""

from __future__ import annotations

from itertools import cycle

from rich import box
from rich.table import Table
from rich.text import Text

from hybridc.console import canvas
from hybridc.ir.graph import Module
from hybridc.report.palette import TERMINAL
from hybridc.report.summary import BlockRow, Summary, count, letters, mixers, size, summarise

MAX_CELLS = 512
"""Cells of one run that are drawn; a longer one is cut with a word on how many are left."""


def render(module: Module, *, batch: int = 1, seq: int = 2048, width: int = 120, color: bool = False) -> str:
    """The whole report of a typed module, at most `width` columns wide, with ANSI colours if `color`."""
    report = summarise(module, batch=batch, seq=seq)
    console, out = canvas(width, color)
    console.print(_title(report))
    console.print()
    console.print(_picture(report))
    console.print()
    for line in _legend(report):
        console.print(line)
    console.print()
    console.print(_blocks(report))
    console.print()
    console.print(_ops(report))
    for note in _notes(report):
        console.print(note)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _title(report: Summary) -> Text:
    module = report.module
    layers = len(module.layers)
    title = Text(module.name, style="bold")
    title.append(
        f"  {count(report.parameters)} parameters, {layers} layer{'s' * (layers != 1)}, {module.dtype.value}",
        "not bold",
    )
    return title


def _styles(report: Summary) -> dict[str, str]:
    names = list(report.module.counts)
    return {name: f"black on {color}" for name, color in zip(names, cycle(TERMINAL), strict=False)}


def _picture(report: Summary) -> Text:
    """`embed > (S S A SM) x 2 > head`, each letter a coloured cell; `|` where a pipeline stage ends."""
    signs, styles = letters(list(report.module.counts)), _styles(report)
    text = Text("embed ", style="dim")
    for n, stage in enumerate(report.stages):
        if n:
            text.append(" ┃ ", "bold red")
        for run in stage:
            brackets = run.count > 1 and len(run.unit) > 1
            text.append(" (" if brackets else " ")
            for i, name in enumerate(run.unit[:MAX_CELLS]):
                text.append(" " if i else "").append(f" {signs[name]} ", styles[name])
            if len(run.unit) > MAX_CELLS:
                text.append(f" and {len(run.unit) - MAX_CELLS} more")
            text.append(")" if brackets else "")
            text.append(f" x {run.count}" if run.count > 1 else "", "bold")
    text.append("  head", "dim")
    return text


def _legend(report: Summary) -> list[Text]:
    """One line a block: its cell, its name, what it is made of."""
    signs, styles = letters(list(report.module.counts)), _styles(report)
    wide = max(len(sign) for sign in signs.values())
    lines = []
    for name, layers in report.module.counts.items():
        line = Text("  ").append(f" {signs[name]:^{wide}} ", styles[name]).append(f"  {name}", "bold")
        block = report.module.by_name[name]
        if "(" in block.title:
            line.append(f" = {block.title}")
        made = ", ".join(path if path == kind else f"{path}: {kind}" for path, kind in mixers(block))
        line.append(f"  {layers} layer{'s' * (layers != 1)}: {made}")
        lines.append(line)
    stages = len(report.stages)
    if stages > 1:
        lines.append(Text("  ").append(" ┃ ", "bold red").append(f"  pipeline stage ends; {stages} stages"))
    return lines


def _table(title: str, first: str, *more: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for name in more:
        table.add_column(name, justify="left" if name == "kind" else "right", no_wrap=name != "kind", overflow="fold")
    return table


def _blocks(report: Summary) -> Table:
    """Totals per block, all its layers together."""
    shared = any(b.sets != b.layers for b in report.blocks)
    head = [
        "layers",
        *(["weight sets"] if shared else []),
        "parameters",
        "share",
        "FLOPs/token",
        "activations",
        "cache",
    ]
    title = f"Blocks, all layers together, for {report.batch} x {count(report.seq)} tokens"
    table = _table(title, "block", *head)
    styles = _styles(report)
    for block in report.blocks:
        color = styles.get(block.name, "").removeprefix("black on ")
        table.add_row(
            Text(block.name, style=color),
            count(block.layers),
            *([count(block.sets)] if shared else []),
            count(block.all_parameters),
            f"{_share(block.all_parameters, report.parameters)} %",
            count(block.all_flops),
            size(block.all_activations),
            size(block.all_caches),
        )
    table.add_section()
    table.add_row(
        "total",
        count(len(report.module.layers)),
        *([""] if shared else []),
        count(report.parameters),
        "100.0 %" if report.parameters else "-",
        count(report.flops_per_token),
        size(report.activation_bytes),
        size(report.cache_bytes),
        style="bold",
    )
    return table


def _ops(report: Summary) -> Table:
    """Each op of each distinct block, for one layer."""
    table = _table("Ops, one layer each", "op", "kind", "parameters", "FLOPs/token", "activations", "cache")
    for block in report.blocks:
        _op_rows(table, block)
    return table


def _op_rows(table: Table, block: BlockRow) -> None:
    table.add_row(
        Text(f"{block.name}" + (f" x {count(block.layers)}" if block.layers > 1 else ""), style="bold"),
        "",
        count(block.parameters),
        count(block.flops_per_token),
        size(block.activation_bytes),
        size(block.cache_bytes),
        style="bold",
    )
    for op in block.ops:
        table.add_row(
            f"  {op.name}",
            "" if op.kind in (op.name, "glue") else op.kind,
            count(op.parameters) if op.parameters else "-",
            count(op.flops_per_token) if op.flops_per_token else "-",
            size(op.activation_bytes),
            size(op.cache_bytes),
        )
    table.add_section()


def _notes(report: Summary) -> list[str]:
    """Memory in sum, precision rules and mesh."""
    module = report.module
    lines = [
        f"weights {size(report.weight_bytes)}; activations kept for backward {size(report.activation_bytes)}; "
        f"caches {size(report.cache_bytes)}. FLOPs are forward; a multiply-add counts as two."
    ]
    for rule in module.precision:
        lines.append(f"precision: {rule.format} on {', '.join(rule.on)}" + _except(rule.exclude))
    if module.mesh:
        lines.append("mesh: " + ", ".join(f"{a.name} = {a.form}" for a in module.mesh))
    return lines


def _except(exclude: tuple[str, ...]) -> str:
    return f" except {', '.join(exclude)}" if exclude else ""


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
