"""fuse: elementwise and row-wise ops get the generated kernels that compute them, several together where one reads
another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hybridc.diagnostics import Sink
from hybridc.ir.formats import Format, parse
from hybridc.ir.graph import Block, Module, Node
from hybridc.ir.kernels import Kernel, entangled, quantized
from hybridc.ir.ops.basic import Add, Scale
from hybridc.ir.ops.norms import LayerNorm, RMSNorm
from hybridc.ir.ops.quantize import Quantize
from hybridc.passes.scales import BLOCKS, has_columns


def fuse(module: Module, sink: Sink, apart: Callable[[Format], bool] = lambda _: True) -> Module:
    """Names the generated kernel of each node that has one, and those of the parts of larger ops.

    In and out: typed modules; run behind `precision`, which puts in the `quantize` that a norm's kernel takes over. A
    norm goes together with the sum that it reads (the residual stream's next value, which the kernel stores as well)
    and a `scale` of what is added, and with the `quantize` that alone reads it; else with the sum that alone reads it.
    Inside an op, a result that only one projection reads is stored in that projection's format, unless ranks have
    channels of it and its scales are of all channels. A group's values are rounded where they are stored, and not in
    between. Nodes keep their ops: what has no use for kernels can ignore the names. `apart` says of a format whether
    its products take what is quantized already.
    """
    ranks = module.axis("tp")
    fused = {name: _Fusion(block, apart, ranks).run() for name, block in module.by_name.items()}
    return replace(
        module,
        embed=fused[module.embed.name],
        blocks=tuple(fused[b.name] for b in module.blocks),
        head=fused[module.head.name],
    )


def whole(kernel: Kernel | None) -> bool:
    """Whether a kernel sees a row at a time, as a quantized result's scales need it, and not one of its segments."""
    return kernel is None or kernel.segments <= 1


@dataclass
class _Fusion:
    """The groups of a block in the making: kernels, and the nodes that each computes."""

    block: Block
    apart: Callable[[Format], bool]
    ranks: int = 1
    groups: list[tuple[str, tuple[Node, ...]]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.nodes = {n.name: n for n in self.block.nodes}
        self.readers: dict[str, list[Node]] = {}
        for node in self.block.nodes:
            for operand in node.operands:
                self.readers.setdefault(operand, []).append(node)

    def run(self) -> Block:
        norms = [n for n in self.block.nodes if isinstance(n.op, (RMSNorm, LayerNorm))]
        for node in norms:
            self.norm_of_sum(node)
        for node in norms:
            self.norm(node)
        for node in self.block.nodes:
            if node.name not in self.taken:
                self.single(node)
        order = {n.name: i for i, n in enumerate(self.block.nodes)}
        kernels: dict[str, str] = {}
        for i, (name, members) in enumerate(sorted(self.groups, key=lambda g: order[g[1][0].name])):
            kernels |= {n.name: f"{name}.{i}" for n in members}
        nodes = (replace(n, kernel=kernels.get(n.name, ""), inner=self.inner(n)) for n in self.block.nodes)
        return replace(self.block, nodes=tuple(nodes))

    def group(self, kernel: str, *members: Node) -> None:
        """Gives nodes one kernel, unless there is no place for it."""
        if not entangled(self.block, members):
            self.groups.append((kernel, members))
            self.taken |= {n.name for n in members}

    def only_reader(self, node: Node) -> Node | None:
        """The node that alone reads a value, once."""
        found = self.readers.get(node.name, [])
        return found[0] if len(found) == 1 and node.name != self.block.result else None

    def kernel(self, node: Node) -> Kernel | None:
        """The kernel of a node's whole op."""
        return next((k for k in node.op.kernels(self.block.widths(node)) if not k.part), None)

    def own(self, node: Node) -> str:
        """The name of the kernel of a node's whole op, or ""."""
        kernel = self.kernel(node)
        return kernel.name if kernel is not None else ""

    def norm_of_sum(self, node: Node) -> None:
        """A norm, the sum that it reads, and what else goes with them."""
        added = self.nodes.get(node.operands[0])
        if added is None or not isinstance(added.op, Add) or added.name in self.taken:
            return
        scale = self.scale(added)
        if scale is None:
            self.stored(f"add_{self.own(node)}", added, node)
        else:
            self.stored(f"scaled_add_{self.own(node)}", scale, added, node)

    def norm(self, node: Node) -> None:
        """A norm that reads no sum."""
        if node.name in self.taken:
            return
        reader = self.only_reader(node)
        if reader is not None and isinstance(reader.op, Add) and reader.name not in self.taken:
            self.group(f"{self.own(node)}_add", node, reader)
        else:
            self.stored(self.own(node), node)

    def stored(self, kernel: str, *members: Node) -> None:
        """A group with the `quantize` that alone reads its last value, if there is one that a kernel can do."""
        reader = self.only_reader(members[-1])
        if reader is not None and isinstance(reader.op, Quantize) and whole(self.kernel(members[-1])):
            name = quantized(kernel, reader.op.made())
            if name != kernel:
                kernel, members = name, (*members, reader)
        self.group(kernel, *members)

    def single(self, node: Node) -> None:
        """A node that goes with no norm."""
        scale = self.scale(node) if isinstance(node.op, Add) else None
        if scale is not None:
            self.group("scaled_add", scale, node)
        elif name := self.own(node):
            self.stored(name, node)

    def scale(self, added: Node) -> Node | None:
        """The `scale` of one side of a sum, if nothing else reads it."""
        for operand in reversed(added.operands):
            found = self.nodes.get(operand)
            if found is not None and isinstance(found.op, Scale) and self.only_reader(found) is not None:
                return None if operand in self.taken else found
        return None

    def inner(self, node: Node) -> tuple[tuple[str, str], ...]:
        """The kernels of parts inside an op."""
        formats = dict(node.formats)
        out = []
        for kernel in node.op.kernels(self.block.widths(node)):
            if kernel.part:
                into = parse(formats.get(kernel.into, "")) if kernel.into and whole(kernel) else None
                kept = into is not None and self.apart(into) and self.scaled_here(node, kernel.into, into)
                out.append((kernel.part, quantized(kernel.name, into if kept else None)))
        return tuple(out)

    def scaled_here(self, node: Node, into: str, format: Format) -> bool:
        """Whether the scales of a projection's input are of channels that a rank has."""
        return format.recipe in BLOCKS or not has_columns(self.block, node, into, self.ranks)
