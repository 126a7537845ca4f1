"""The IR: a module of distinct blocks, each straight-line SSA, and the list of layers that says where each block
occurs.

Everything is frozen: a pass makes a new module. Spans and source texts ride along for diagnostics and emitted comments
and take no part in equality.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from hybridc.diagnostics import NO_SPAN, Span
from hybridc.ir.ops.base import Op, Param, Widths
from hybridc.ir.packed import stored
from hybridc.ir.types import DType, TensorType


@dataclass(frozen=True)
class Node:
    """One application of an op: result `name` from the values `operands`.

    `path` is the submodule that holds the op's parameters below its block ("" for ops without any). `type` is None
    until the infer pass has run. `hint` is the name that the spec gives the value, if it does. `formats` are the number
    formats of its projections, by their names below the op. `own` says that its parameters are each layer's own where
    the block is shared. `kernel` is the generated kernel that computes the node together with those of the same name,
    `inner` are those that compute parts inside its op, by the parts' names. `held` are its parameters as
    a rank has them, in a module of what one rank computes: they start as the whole ones do.
    """

    name: str
    op: Op
    operands: tuple[str, ...]
    path: str = ""
    type: TensorType | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)
    spans: tuple[tuple[str, Span], ...] = field(default=(), compare=False, repr=False)
    text: str = field(default="", compare=False, repr=False)
    hint: str = field(default="", compare=False, repr=False)
    formats: tuple[tuple[str, str], ...] = ()
    own: bool = False
    kernel: str = ""
    inner: tuple[tuple[str, str], ...] = ()
    held: tuple[Param, ...] | None = None


@dataclass(frozen=True)
class Arg:
    """A block's argument: `x` the residual stream, `x0` the embedding's result, `ids` the token ids."""

    name: str
    type: TensorType | None = None


@dataclass(frozen=True)
class Block:
    """Straight-line SSA from `args` to `result`. `title` is how the layer pattern wrote it, `source` its statements."""

    name: str
    args: tuple[Arg, ...]
    nodes: tuple[Node, ...]
    result: str
    title: str = field(default="", compare=False)
    source: tuple[str, ...] = field(default=(), compare=False, repr=False)
    span: Span = field(default=NO_SPAN, compare=False, repr=False)
    residuals: int = field(default=0, compare=False)

    @cached_property
    def types(self) -> dict[str, TensorType]:
        """Types of all values; only those that have been inferred."""
        pairs = [(a.name, a.type) for a in self.args] + [(n.name, n.type) for n in self.nodes]
        return {name: t for name, t in pairs if t is not None}

    def widths(self, node: Node) -> Widths:
        """Widths of a node's operands. Needs inferred types."""
        return tuple(self.types[o].width for o in node.operands)

    def projections(self) -> Iterator[tuple[Node, str, tuple[str, ...]]]:
        """All projections, each with its node, its name below the op, and its path below the block."""
        for node in self.nodes:
            for part in node.op.projections(self.widths(node)) if node.path else ():
                yield node, part, (*node.path.split("."), *(part.split(".") if part else ()))

    def params(self) -> Iterator[tuple[Node, Param]]:
        """All parameters, each with the node that owns it."""
        for node in self.nodes:
            for param in self.params_of(node):
                yield node, param

    def params_of(self, node: Node) -> tuple[Param, ...]:
        """The parameters of a node in the formats that it has."""
        if node.held is not None:
            return node.held
        return stored(node.op, self.widths(node), dict(node.formats))


@dataclass(frozen=True)
class Layer:
    """One occurrence of a block. `weights` names the shared weight set, or is "" for weights of its own."""

    block: str
    stage: int = 0
    weights: str = ""


@dataclass(frozen=True)
class InitScheme:
    """How projections and embeddings start: `normal` with `std`, or `kaiming` uniform; `depth` scales residual
    outputs."""

    kind: str = "normal"
    std: float = 0.02
    depth: bool = True


@dataclass(frozen=True)
class PrecisionRule:
    """`format` on the modules that `on` selects and `exclude` does not, as canonical text."""

    format: str
    on: tuple[str, ...]
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeshAxis:
    """`size` ranks of an axis; `form` is how the spec wrote it (`fsdp(4)`, `dynamic(1..8)`)."""

    name: str
    size: int
    form: str
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True)
class Module:
    """A whole model. `embed` maps ids to x, then `layers` in order, then `head` maps x to logits; `mtp` as `layers`."""

    name: str
    embed: Block
    blocks: tuple[Block, ...]
    layers: tuple[Layer, ...]
    head: Block
    mtp: tuple[Layer, ...] = ()
    params: tuple[tuple[str, int | float | str | bool | None], ...] = ()
    init: InitScheme = InitScheme()
    dtype: DType = DType.FP32
    precision: tuple[PrecisionRule, ...] = ()
    mesh: tuple[MeshAxis, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Block]:
        """The blocks, the embedding and the head by name."""
        return {b.name: b for b in (self.embed, *self.blocks, self.head)}

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many layers each block stands for."""
        out: dict[str, int] = {}
        for layer in self.layers:
            out[layer.block] = out.get(layer.block, 0) + 1
        return out

    @cached_property
    def weight_sets(self) -> dict[str, int]:
        """How many sets of parameters each block has, shared occurrences counted once."""
        seen: dict[str, set[str]] = {}
        own: dict[str, int] = {}
        for layer in self.layers:
            if layer.weights:
                seen.setdefault(layer.block, set()).add(layer.weights)
            else:
                own[layer.block] = own.get(layer.block, 0) + 1
        return {name: own.get(name, 0) + len(seen.get(name, ())) for name in self.counts}

    def copies(self, block: Block, node: Node, param: Param) -> int:
        """How many tensors a parameter of a layer's block stands for: one a weight set, or one a layer where it is the
        layer's own."""
        counts = self.counts if node.own or param.own else self.weight_sets
        return counts.get(block.name, 0)

    @cached_property
    def residuals(self) -> int:
        """Residual sublayers over all layers; what depth-scaled initialisation divides by the root of."""
        return sum(self.by_name[name].residuals * count for name, count in self.counts.items())

    def axis(self, name: str) -> int:
        """Size of a mesh axis, 1 where the spec has none."""
        return next((a.size for a in self.mesh if a.name == name), 1)
