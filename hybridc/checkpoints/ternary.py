"""Ternary weights at 2 bits, from public files that hold them as plain numbers and from nets that were trained."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.ir.emit import Emit
from hybridc.ir.graph import Block, Module
from hybridc.ir.packed import linear_parts, unpackable

if TYPE_CHECKING:
    from torch import Tensor, nn

PACKED = "bitnet(packed)"


def packed(name: str, value: Tensor) -> Tensor:
    """The tensor `name` [rows, in] of -1, 0 and 1 in bytes [⌈rows / 4⌉, in]. Raises DiagnosticError (HYB511) for other
    numbers."""
    from hybridc.runtime.ops.ternary_rows import pack_rows

    levels = value.char()
    if not bool((levels == value).all()) or bool((levels.abs() > 1).any()):
        label = f"`{name}` is to be ternary, and holds other numbers than -1, 0 and 1"
        help = "take the config.json that belongs to the weights: quantization_mode is `online` for master weights"
        raise DiagnosticError([Diagnostic("HYB511", NO_SPAN, label, help)])
    return pack_rows(levels)


def unpacked(value: Tensor, rows: int) -> Tensor:
    """Bytes [⌈rows / 4⌉, in] as a bf16 tensor [rows, in] of -1, 0 and 1."""
    import torch

    from hybridc.runtime.ops.ternary_rows import unpack_rows

    return unpack_rows(value, (rows,), torch.bfloat16)


def pack_bitnet(net: nn.Module) -> nn.Module:
    """A net with its projections in `bitnet` as one with them in `bitnet(packed)`, to run and not to train.

    Both compute the same, to the rounding of sums. Experts stay in the training form. All parameters but the packed
    weights are those of the net itself and not copies. Raises DiagnosticError: HYB513 for a net that hybridc has not
    compiled, HYB309 for one without a projection to pack, HYB311 for one rank's part of one.
    """
    from torch.nn import Parameter

    from hybridc.codegen.loader import load_source
    from hybridc.codegen.package import emit_package
    from hybridc.runtime.meta import on_meta
    from hybridc.runtime.ops.bit_linear import PackedWeight, ternary_levels
    from hybridc.runtime.ops.ternary_rows import pack_rows

    module = getattr(net, "ir", None)
    if not isinstance(module, Module):
        help = "make it with hybridc.compile or hybridc.from_hf"
        raise DiagnosticError([Diagnostic("HYB513", NO_SPAN, "this net has no spec", help)])
    if module.axis("tp") > 1:
        label = f"the net is one rank's of tp = {module.axis('tp')}, and a byte holds rows that different ranks have"
        help = "load the whole state dict into a net that is compiled for one rank, and pack that"
        raise DiagnosticError([Diagnostic("HYB311", NO_SPAN, label, help)])
    ir = packed_ir(module)
    if ir == module:
        help = "give projections the format in the spec: `bitnet on layers.**`"
        raise DiagnosticError([Diagnostic("HYB309", NO_SPAN, "no projection of the net is in `bitnet`", help)])
    target, libraries = made_for = net.compiled_for  # type: ignore[misc]
    source = emit_package(ir, "", Emit(target=target, dtype=ir.dtype.value, libraries=libraries))
    made: nn.Module = on_meta(lambda: load_source(ir.name, source["model.py"], source.get("kernels.py", "")).Model())
    made.ir, made.compiled_for = ir, made_for  # type: ignore[assignment]
    for path, old in net.named_modules():
        new = made.get_submodule(path)
        if isinstance(new, PackedWeight):
            levels, scales = ternary_levels(old.weight, old.parts)
            new.weight = Parameter(pack_rows(levels, new.parts), requires_grad=False)
            new.weight_scale = Parameter(scales, requires_grad=False)
            new.bias = old.bias
        else:
            new._parameters.update(old._parameters)
            new._buffers.update(old._buffers)
    return made.train(net.training)


def packed_ir(module: Module) -> Module:
    """A typed model with all linear maps in `bitnet` that can be packed in `bitnet(packed)`."""

    def of(block: Block) -> Block:
        nodes = []
        for node in block.nodes:
            ins = block.widths(node)
            linears = linear_parts(node.op, ins) if node.formats else {}
            formats = tuple(
                (
                    part,
                    PACKED if format == "bitnet" and part in linears and not unpackable(node.op, ins, part) else format,
                )
                for part, format in node.formats
            )
            nodes.append(replace(node, formats=formats))
        return replace(block, nodes=tuple(nodes))

    rules = tuple(replace(r, format=PACKED) if r.format == "bitnet" else r for r in module.precision)
    made = replace(module, blocks=tuple(map(of, module.blocks)), head=of(module.head))
    return replace(made, precision=rules) if made != module else module
