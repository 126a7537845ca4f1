"""falcon_h1_0_5b on a mesh of dp = fsdp(2), tp = 2. Emitted by hybridc 0.1.0."""

from hybridc.runtime.parallel.agree import agree
from hybridc.runtime.parallel.fsdp import FullyShard, units
from hybridc.runtime.parallel.gradients import Gradients
from hybridc.runtime.parallel.memory import materialise
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.place import place

SPEC = "6db2dca0f9fe"


def shard(model, mesh):
    """Puts a model on a device mesh with the dims dp, tp."""
    agree(SPEC, model, mesh)
    mesh = Mesh.of(mesh, model.MESH)
    place(model, mesh)
    fully_shard = FullyShard(model, mesh)
    for blocks in units(model):
        fully_shard(*blocks)
    fully_shard(model)
    materialise(model, mesh)
    model.gradients = Gradients(model, mesh)
    return model
