"""Where values lie on a mesh: what each of its axes does to them."""

from __future__ import annotations

from dataclasses import dataclass

AXES = ("pp", "dp", "cp", "tp", "ep")
"""The axes of a mesh, the outermost first: neighbours on the last ones are the nearest to each other."""


@dataclass(frozen=True, slots=True)
class Place:
    """What one mesh axis does to a value.

    `split`: each rank has a part of dim `dim` (of its two mirrored halves when `zigzag`). `partial`: the value is the
    sum of what the ranks have. `reduced`: each rank has the whole value, and a part of its gradient, whose sum is the
    gradient. A value that an axis does not name is `replicated`: whole on each rank, and so is its gradient.
    """

    kind: str
    dim: int = 0
    zigzag: bool = False


PARTIAL, REDUCED, REPLICATED = Place("partial"), Place("reduced"), Place("replicated")


def split(dim: int, *, zigzag: bool = False) -> Place:
    """Parts of dim `dim`, counted from the front."""
    return Place("split", dim, zigzag)


Layout = tuple[tuple[str, Place], ...]
"""What mesh axes do to a value, in the order of the mesh; replicated axes are left out."""
