"""nemotron_h_8b on a mesh of pp = 4, dp = fsdp(8), tp = 8. Emitted by hybridc 0.1.0."""

from hybridc.runtime.parallel.agree import agree
from hybridc.runtime.parallel.fsdp import FullyShard, units
from hybridc.runtime.parallel.gradients import Gradients
from hybridc.runtime.parallel.memory import materialise
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.pipeline import pipeline
from hybridc.runtime.parallel.place import place

SPEC = "727d09fbd185"
STAGES = (14, 28, 43, 52)


def shard(model, mesh):
    """Puts a model on a device mesh with the dims pp, dp, tp."""
    agree(SPEC, model, mesh)
    mesh = Mesh.of(mesh, model.MESH)
    pipeline(model, mesh, STAGES, "1f1b", width=4096)
    place(model, mesh)
    fully_shard = FullyShard(model, mesh)
    for blocks in units(model):
        fully_shard(*blocks)
    for stage in model.pipeline.modules:
        fully_shard(stage)
    materialise(model, mesh)
    model.gradients = Gradients(model, mesh)
    return model
