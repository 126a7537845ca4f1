"""zamba2_1_2b on a mesh of pp = 2, tp = 2. Emitted by hybridc 0.1.0."""

from hybridc.runtime.parallel.agree import agree
from hybridc.runtime.parallel.gradients import Gradients
from hybridc.runtime.parallel.memory import materialise
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.pipeline import pipeline
from hybridc.runtime.parallel.place import place

SPEC = "ad4f9d3c6740"
STAGES = (20, 38)


def shard(model, mesh):
    """Puts a model on a device mesh with the dims pp, tp."""
    agree(SPEC, model, mesh)
    mesh = Mesh.of(mesh, model.MESH)
    pipeline(model, mesh, STAGES, "1f1b", width=2048, x0=True)
    place(model, mesh)
    materialise(model, mesh)
    model.gradients = Gradients(model, mesh)
    return model
