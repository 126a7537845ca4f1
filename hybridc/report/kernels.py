"""The kernels of a compiled package as a table: where each is launched and what it needs of the device."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from hybridc.codegen.cubin import REGISTER_LIMIT, SHARED_LIMIT
from hybridc.codegen.package import is_package
from hybridc.console import canvas
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.ir.backends import capability

SHOWN = {"tensor": "tensor", "global": "global"}
"""Groups of instructions that have a column, and its title."""


@dataclass(frozen=True)
class Kernels:
    """What the table is about: a model's name, its target, the manifest's list, and what is worth a warning."""

    model: str
    target: str
    rows: Sequence[Mapping[str, Any]]
    warnings: tuple[Diagnostic, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)


def read_kernels(
    source: Path, target: str, params: Mapping[str, str], mesh: Mapping[str, str], include: Sequence[Path] = ()
) -> Kernels:
    """The kernels of a package that has them for `target` ("" for its own), else of a spec compiled now.

    Raises DiagnosticError, also (HYB613) for a target that has none.
    """
    from hybridc.ahead.package import misfit, write_with_kernels
    from hybridc.compiler import compile

    if is_package(source):
        manifest = _manifest(source)
        target = target or manifest["target"]
        if "kernels" in manifest and target == manifest["target"] and not params and not mesh:
            rows = manifest["kernels"]
            return Kernels(manifest["model"], target, rows, tuple(misfit(r, target) for r in rows if not r["fits"]))
        source = source / "spec.hyb"
    if target in ("", "cpu"):
        label = "the cpu has no kernels to compile"
        raise DiagnosticError([Diagnostic("HYB613", NO_SPAN, label, "name a target, such as --target cuda:sm90")])
    compiled = compile(source, target=target, params=params, mesh=mesh, include=include)
    warnings = list(compiled.warnings)
    with tempfile.TemporaryDirectory(prefix="hybridc-kernels-") as folder:
        package = Path(folder) / "package"
        warnings += write_with_kernels(compiled.source, package, target)[1]
        rows = _manifest(package)["kernels"]
    return Kernels(compiled.ir.name, target, rows, tuple(warnings), compiled.sources)


def _manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return found


NUMBERS = 76
"""Columns of a terminal that the numbers of a kernel take."""


def render(found: Kernels, *, width: int = 120, color: bool = False) -> str:
    """The table, at most `width` columns wide, with ANSI colours if `color`."""
    console, out = canvas(width, color)
    target, kernels = found.target, found.rows
    title = f"{found.model}: {len(kernels)} kernel{'s' * (len(kernels) != 1)} on {target}"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    # numbers are shown whole, whatever places there are
    room = max(40, width - NUMBERS)
    table.add_column("kernel, and where it is launched", no_wrap=True, overflow="ellipsis", max_width=room)
    for head in ("warps", "regs", "KiB", "stack", "spills", *SHOWN.values(), "all", "fits"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in kernels:
        mix = row["instructions"]
        table.add_row(
            row["name"],
            str(row["options"].get("num_warps", 4)),
            str(row["registers"]),
            f"{row['shared'] / 1024:.1f}",
            str(row["stack"]),
            str(row["spills"]),
            *(f"{mix[group]:,}" for group in SHOWN),
            f"{mix['all']:,}",
            "yes" if row["fits"] else "no",
            style="" if row["fits"] else "bold red",
        )
        table.add_row(f"  {_places(row['launched_in'])}", style="dim")
    console.print(table)
    limit = SHARED_LIMIT[capability(target)] / 1024
    console.print(
        f"A thread may have {REGISTER_LIMIT} registers, a block {limit:.0f} KiB of shared memory. Instructions are "
        "those of tensor cores, of global memory, and all; manifest.json has more groups, types and constants."
    )
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _places(places: Sequence[Mapping[str, str]]) -> str:
    """`Mamba.mixer.conv forward, backward`: each module once, with the runs that it is in."""
    runs: dict[str, list[str]] = {}
    for place in places:
        runs.setdefault(place["where"], []).append(place["run"])
    return "; ".join(f"{where} {', '.join(names)}" for where, names in runs.items())
