"""The mesh of a run: its axes as this rank sees them."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch.distributed.device_mesh import DeviceMesh

from hybridc.runtime.errors import UsageError
from hybridc.runtime.parallel.axis import Axis

AXES = ("pp", "dp", "cp", "tp", "ep")


class Mesh:
    """Axes by name; those that the device mesh does not have are of one rank. `device_mesh` is torch's."""

    idle = False
    """Whether this rank's tokens count for nothing, because its batch is over and others' is not."""

    def __init__(self, device_mesh: DeviceMesh | None, axes: Mapping[str, Axis]) -> None:
        self.device_mesh = device_mesh
        self.axes = {name: axes.get(name, Axis(name)) for name in AXES}
        self.pp, self.dp, self.cp, self.tp, self.ep = (self.axes[name] for name in AXES)

    @classmethod
    def of(cls, device_mesh: DeviceMesh, sizes: Mapping[str, int]) -> Mesh:
        """The mesh of a device mesh whose dims are axes of these sizes.

        Raises UsageError where it is not the one that a module was compiled for.
        """
        names = device_mesh.mesh_dim_names or ()
        found = {name: device_mesh.size(n) for n, name in enumerate(names)}
        wanted = {name: size for name, size in sizes.items() if size > 1}
        if {n: s for n, s in found.items() if s > 1} != wanted:
            shown = ", ".join(f"{n} = {s}" for n, s in found.items()) or "no axes"
            meant = ", ".join(f"{n}={s}" for n, s in wanted.items()) or "one rank"
            raise UsageError(f"the mesh has {shown}", f"compile with --mesh for it, or give the module's own: {meant}")
        axes = {
            name: Axis(name, size, device_mesh.get_local_rank(name), device_mesh.get_group(name))
            for name, size in found.items()
            if size > 1
        }
        return cls(device_mesh, axes)

    @property
    def device(self) -> torch.device:
        """Where tensors have to be that ranks send each other."""
        return torch.device("cpu" if self.device_mesh is None else self.device_mesh.device_type)

    def dp_of(self, index: int) -> int:
        """Where along dp the rank is that stands at an index of the flattened mesh."""
        if self.device_mesh is None or self.dp.size == 1:
            return 0
        at = (self.device_mesh.mesh_dim_names or ()).index("dp")
        shape = self.device_mesh.mesh.shape
        return index // shape[at + 1 :].numel() % shape[at]

    def idling(self) -> Mesh:
        """The same mesh for a forward whose tokens count for nothing on this rank."""
        made = copy.copy(self)
        made.idle = True
        return made


SERIAL = Mesh(None, {})
"""One rank."""
