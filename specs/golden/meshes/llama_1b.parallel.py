"""llama_1b on a mesh of tp = 2. Emitted by hybridc 0.1.0."""

from hybridc.runtime.parallel.agree import agree
from hybridc.runtime.parallel.gradients import Gradients
from hybridc.runtime.parallel.memory import materialise
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.place import place

SPEC = "ac18c85b04c7"


def shard(model, mesh):
    """Puts a model on a device mesh with the dims tp."""
    agree(SPEC, model, mesh)
    mesh = Mesh.of(mesh, model.MESH)
    place(model, mesh)
    materialise(model, mesh)
    model.gradients = Gradients(model, mesh)
    return model
