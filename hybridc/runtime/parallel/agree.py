"""Ranks that do not do the same are told so, all of them, before they wait for each other."""

from __future__ import annotations

from torch import distributed

from hybridc.runtime.errors import UsageError
from hybridc.runtime.parallel.mesh import Mesh


def agree(what: str, mesh: Mesh) -> None:
    """Raises UsageError on every rank where one has another `what`."""
    found: list[str] = [""] * distributed.get_world_size()
    distributed.all_gather_object(found, what)
    others = [n for n, other in enumerate(found) if other != found[0]]
    if others:
        shown = ", ".join(map(str, others[:8]))
        raise UsageError(f"ranks {shown} run another model than rank 0", "start all ranks from one emitted package")
