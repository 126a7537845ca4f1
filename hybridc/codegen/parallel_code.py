"""`parallel.py`: how an emitted model goes onto its mesh."""

from __future__ import annotations

from hybridc.codegen.stage_code import stage_lines
from hybridc.codegen.torch_code import emitted_axes, is_fsdp
from hybridc.ir.emit import lit
from hybridc.ir.graph import Module
from hybridc.ir.types import DType
from hybridc.version import VERSION


def parallel_files(module: Module, digest: str) -> dict[str, str]:
    """`parallel.py` by its name, where a mesh has more ranks than one."""
    sizes = emitted_axes(module)
    if not sizes:
        return {}
    shown = ", ".join(f"{a.name} = {a.form}" for a in module.mesh if a.name in sizes)
    imports = ["agree.agree", "gradients.Gradients", "memory.materialise", "mesh.Mesh", "place.place"]
    steps = ["agree(SPEC, model, mesh)", "mesh = Mesh.of(mesh, model.MESH)", "place(model, mesh)"]
    dtype, constants = "", [f"SPEC = {lit(digest[:12])}"]
    if "pp" in sizes:
        stages, cut = stage_lines(module)
        constants += stages
        steps.insert(2, cut)
        imports.append("pipeline.pipeline" if len(stages) == 1 else "pipeline.RouterLosses, pipeline")
    if is_fsdp(module):
        imports.append("fsdp.FullyShard, units")
        dtype = "" if module.dtype is DType.FP32 else f"torch.{module.dtype.torch_name}"
        steps += fsdp_lines(dtype, stages="pp" in sizes)
    steps += ["materialise(model, mesh)", "model.gradients = Gradients(model, mesh)", "return model"]
    lines = [
        f'"""{module.name} on a mesh of {shown}. Emitted by hybridc {VERSION}."""',
        "",
        *(["import torch", ""] if dtype else []),
        *(f"from hybridc.runtime.parallel.{m} import {names}" for m, _, names in map(_dotted, sorted(imports))),
        "",
        *constants,
        "",
        "",
        "def shard(model, mesh):",
        f'    """Puts a model on a device mesh with the dims {", ".join(sizes)}."""',
        *(f"    {step}" for step in steps),
    ]
    return {"parallel.py": "\n".join(lines) + "\n"}


def fsdp_lines(dtype: str, *, stages: bool) -> list[str]:
    """The lines that shard a model's parameters over dp, block by block; `dtype` is what blocks compute in, where it is
    not that of the parameters."""
    roots = ["for stage in model.pipeline.modules:", "    fully_shard(stage)"] if stages else ["fully_shard(model)"]
    return [
        f"fully_shard = FullyShard(model, mesh{', ' if dtype else ''}{dtype})",
        "for blocks in units(model):",
        "    fully_shard(*blocks)",
        *roots,
    ]


def _dotted(name: str) -> tuple[str, str, str]:
    return name.partition(".")
