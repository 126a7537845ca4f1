"""Generated kernels as the IR knows them: by name, with what a form of one is made for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hybridc.ir.formats import Format

if TYPE_CHECKING:
    from hybridc.ir.graph import Block, Node


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can compute a part of an op: "" for the whole op.

    `width` are the numbers of a row, or of each of its `segments`; `constants` go by name. `into` is the projection
    that alone reads the result: where that is quantized, the kernel can store what it reads.
    """

    name: str
    width: int
    constants: tuple[tuple[str, float | int | bool], ...] = ()
    segments: int = 0
    part: str = ""
    into: str = ""

    def at(self, part: str, into: str = "") -> Kernel:
        """The kernel for a part of a larger op."""
        return replace(self, part=part, into=into)

    def options(self) -> dict[str, float | int | bool]:
        """The numbers that it is called with."""
        return {**dict(self.constants), **({"segments": self.segments} if self.segments else {})}


def inside(
    name: str,
    width: int,
    part: str,
    into: str = "",
    *,
    segments: int = 0,
    constants: Mapping[str, float | int | bool] | None = None,
) -> Kernel:
    """The kernel for a part of an op."""
    return Kernel(name, width, tuple((constants or {}).items()), segments, part, into)


def quantized(name: str, format: Format | None) -> str:
    """The kernel that stores its result in a number format, or the kernel as it is where there is none for it.

    E4M3 with a factor for each row or each 128 columns, in fp32; 8 bits with a factor for each row for bitnet. Other
    recipes need to know the whole tensor, or the forms are not generated.
    """
    forms = {("bitnet", ""): "int8_row", ("fp8", "row"): "e4m3_row", ("fp8", "block128"): "e4m3_block"}
    format = format.of_input if format is not None else None
    if format is None or (format.name, format.recipe) not in forms:
        return name
    options = dict(format.options)
    if options.get("fwd", "e4m3") != "e4m3" or options.get("scale", "fp32") != "fp32":
        return name
    return f"{name}_{forms[format.name, format.recipe]}"


def groups(block: Block) -> dict[str, tuple[Node, ...]]:
    """The nodes that one kernel computes together, by its name and number in the block."""
    out: dict[str, tuple[Node, ...]] = {}
    for node in block.nodes:
        if node.kernel:
            out[node.kernel] = (*out.get(node.kernel, ()), node)
    return out


def entangled(block: Block, members: Iterable[Node]) -> str:
    """A value between members of a group that is none of theirs, so that no place in the block is right for the
    kernel; "" where there is none."""
    mine = {n.name for n in members}
    behind: set[str] = set()
    for node in block.nodes:
        if node.name in mine:
            found = behind & set(node.operands)
            if found:
                return min(found)
        elif (mine | behind) & set(node.operands):
            behind.add(node.name)
    return ""
