"""What emitted code has for pipeline stages: the methods that run one, and the line that cuts a model into them."""

from __future__ import annotations

from hybridc.ir.emit import call, lit, quote
from hybridc.ir.graph import Module
from hybridc.ir.ops.moe import MoE
from hybridc.ir.pipelines import schedule


def stage_methods(ctx: str, layer: str, output: str, *, x0: bool) -> list[list[str]]:
    """`stage` and `output` of a model no rank of which has all layers. `ctx` is the embedding's further argument,
    `layer` the line that calls one, `output` the call that makes the last stage's result."""
    stream = ("x", "x0") if x0 else ("x",)
    return [
        [
            f"def stage(self, layers, ctx, {', '.join(f'{name}=None' for name in stream)}):",
            "    if x is None:",
            f"        {' = '.join(stream)} = self.embed(ctx.input_ids{ctx})",
            "    for i in layers:",
            f"        {layer}",
            f"    return {', '.join(stream)}{'' if x0 else ','}",
        ],
        ["def output(self, ctx, x, labels=None):", f"    return ctx.{output}"],
    ]


def stage_lines(module: Module) -> tuple[list[str], str]:
    """Constants of `parallel.py` that say where the stages end, and the call that leaves a model its own."""
    order = [layer.stage for layer in module.layers]
    ends = [n for n in range(1, len(order) + 1) if n == len(order) or order[n] != order[n - 1]]
    constants = [f"STAGES = ({', '.join(map(str, ends))})"]
    options = {"width": str(module.embed.types[module.embed.result].width)}
    if any(arg.name == "x0" for block in module.blocks for arg in block.args):
        options["x0"] = "True"
    if routers := _routers(module):
        constants.append(f"ROUTERS = ({', '.join(routers)},)")
        options["routers"] = "ROUTERS"
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    return constants, f"pipeline(model, mesh, STAGES, {quote(schedule(module).name)}, {given})"


def _routers(module: Module) -> list[str]:
    """The kinds of routers whose losses couple the layers of all stages, each once, in the order of the layers."""
    found: dict[str, None] = {}
    for layer in module.layers:
        for node in module.by_name[layer.block].nodes:
            op = node.op
            if isinstance(op, MoE) and (op.aux_coef or op.z_coef):
                found[call("RouterLosses", op.experts, op.top_k, lit(op.aux_coef), lit(op.z_coef))] = None
    return list(found)
