"""`parallel.py`: how an emitted model goes onto its mesh."""

from __future__ import annotations

from hybridc.codegen.torch_code import emitted_axes
from hybridc.ir.emit import lit
from hybridc.ir.graph import Module
from hybridc.version import VERSION


def parallel_files(module: Module, digest: str) -> dict[str, str]:
    """`parallel.py` by its name, where a mesh has more ranks than one."""
    sizes = emitted_axes(module)
    if not sizes:
        return {}
    shown = ", ".join(f"{a.name} = {a.form}" for a in module.mesh if a.name in sizes)
    imports = ["from hybridc.runtime.parallel.agree import agree", "from hybridc.runtime.parallel.mesh import Mesh"]
    steps = ["    mesh = Mesh.of(mesh, model.MESH)", "    agree(SPEC, mesh)"]
    imports.append("from hybridc.runtime.parallel.place import place")
    steps.append("    place(model, mesh)")
    steps.append("    return model")
    lines = [
        f'"""{module.name} on a mesh of {shown}. Emitted by hybridc {VERSION}."""',
        "",
        *imports,
        "",
        f"SPEC = {lit(digest[:12])}",
        "",
        "",
        "def shard(model, mesh):",
        f'    """Puts a model on a device mesh with the dims {", ".join(sizes)}."""',
        *steps,
    ]
    return {"parallel.py": "\n".join(lines) + "\n"}
