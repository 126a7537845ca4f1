"""The schedule that a mesh gives its pipeline stages: how many there are, and which rank has which."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hybridc.ir.graph import Module


@dataclass(frozen=True)
class Schedule:
    """`1f1b`, `interleaved`, `zero_bubble` or `zbv` over `ranks`, each with `chunks` stages."""

    name: str
    ranks: int
    chunks: int = 1

    @property
    def stages(self) -> int:
        """Stages in all."""
        return self.ranks * self.chunks


def schedule(module: Module) -> Schedule:
    """The schedule of a module's `pp`; 1F1B where it is a plain number."""
    axis = next((a for a in module.mesh if a.name == "pp"), None)
    if axis is None:
        return Schedule("1f1b", 1)
    form = re.fullmatch(r"(interleaved|zero_bubble|zbv)\(\d+(?:, chunks=(\d+))?\)", axis.form)
    if form is None:
        return Schedule("1f1b", axis.size)
    return Schedule(form[1], axis.size, 2 if form[1] == "zbv" else int(form[2]))
