"""layout: where every value lies on the mesh, chosen block by block so that the fewest bytes are sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hybridc.diagnostics import Sink
from hybridc.ir.formats import parse
from hybridc.ir.graph import Arg, Block, Module, Node
from hybridc.ir.ops.collectives import MOVES, Redistribute, sent
from hybridc.ir.ops.quantize import Quantize
from hybridc.ir.places import PARTIAL, REPLICATED, Place, split
from hybridc.ir.sharding import TOKENS, Rule, whole_tokens
from hybridc.ir.types import INTEGERS, TensorType
from hybridc.passes.scales import fits, scales
from hybridc.passes.simplify import simplify

NOMINAL_TOKENS = 8192
"""Tokens of a micro-batch over which the sums of whole parameters' gradients are spread."""

KEPT = 64
"""States that are followed at each op, the cheapest ones. Blocks of hybrids have some dozens; one with many values at a
time has exponentially many."""

Available = tuple[tuple[str, tuple[Place, ...]], ...]
"""The places at which values that are still to be read are there, by their names."""


def layout(module: Module, sink: Sink) -> Module:
    """Gives every value its layout, and puts a `redistribute` wherever an op reads it at another place.

    In and out: typed modules of whole values. Between blocks the residual stream is split over tokens on tp (sequence
    parallelism) and over the batch on dp. Each block is solved by itself, by dynamic programming over its ops: a state
    is where the values that are still to be read are there, a step one of an op's rules with the moves that it needs,
    its cost the bytes that a rank sends in forward and backward. A value that was moved once is there for all readers.
    Changes no number but by the order of sums; reports products whose scales it would change (see `scales`).
    """
    if all(module.axis(axis) == 1 for axis in ("dp", "tp")):
        return module
    ranks = module.axis("tp")
    laid = {
        name: _laid(block, ranks, module.axis("dp") > 1, split(2) if block is module.head else TOKENS)
        for name, block in module.by_name.items()
    }
    made = replace(
        module,
        embed=laid[module.embed.name],
        blocks=tuple(laid[b.name] for b in module.blocks),
        head=laid[module.head.name],
    )
    scales(made, sink)
    return simplify(made, sink)


def _laid(block: Block, ranks: int, batch: bool, target: Place) -> Block:
    if ranks > 1:
        block = _Solver(block, ranks, target).run()
    if not batch:
        return block
    nodes = (replace(n, type=n.type.at("dp", split(0)) if n.type is not None else None) for n in block.nodes)
    args = (replace(a, type=a.type.at("dp", split(0)) if a.type is not None else None) for a in block.args)
    return replace(block, nodes=tuple(nodes), args=tuple(args))


@dataclass(frozen=True)
class _Step:
    """How a state was reached: the rule of the last op, the moves in front of it, and what was before."""

    cost: float
    rule: Rule | None = None
    moves: tuple[tuple[str, Place, Place], ...] = ()
    before: _Step | None = None


@dataclass
class _Solver:
    """One block on the tensor-parallel axis."""

    block: Block
    ranks: int
    target: Place
    types: dict[str, TensorType] = field(init=False)
    quantized: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.types = self.block.types
        self.quantized = {n.name for n in self.block.nodes if isinstance(n.op, Quantize)}

    def run(self) -> Block:
        """The block with layouts and moves."""
        return self._rebuilt(self._solved())

    def _solved(self) -> _Step:
        last = {o: n for n, node in enumerate(self.block.nodes) for o in node.operands}
        last[self.block.result] = len(self.block.nodes)
        start: Available = tuple((a.name, (self._given(a),)) for a in self.block.args)
        states: dict[Available, _Step] = {start: _Step(0.0)}
        for n, node in enumerate(self.block.nodes):
            rules = self._rules(node)
            reached: dict[Available, _Step] = {}
            for available, step in states.items():
                for rule in rules:
                    self._apply(node, rule, dict(available), step, {v for v, at in last.items() if at > n}, reached)
            states = dict(sorted(reached.items(), key=lambda pair: pair[1].cost)[:KEPT])
        ends = []
        for available, step in states.items():
            source, cost = self._nearest(self.block.result, dict(available)[self.block.result], self.target)
            moves = () if source == self.target else ((self.block.result, source, self.target),)
            ends.append(_Step(step.cost + cost, None, moves, step))
        return min(ends, key=lambda s: s.cost)

    def _rules(self, node: Node) -> tuple[Rule, ...]:
        """The rules of a node's op. Quantized products read no parts of sums, whose roundings do not add up, and FP8's
        no parts of the tokens, of which a recipe may have one scale; its blocks are whole by some rule, if there is
        one. A mixer whose blocks are not is computed whole on each rank."""
        widths = self.block.widths(node)
        formats = {format.name for _, text in node.formats if (format := parse(text)) is not None}
        unfit = {PARTIAL, *((TOKENS,) if "fp8" in formats else ())} if formats else set()
        rules = tuple(r for r in node.op.rules(widths, self.ranks) if not unfit & set(r.takes))
        fitting = tuple(r for r in rules if fits(node, widths, r, self.ranks))
        if not fitting and node.op.cache(widths, 1):
            return whole_tokens(len(widths))
        return fitting or rules

    def _given(self, arg: Arg) -> Place:
        integers = arg.type is not None and arg.type.dtype in INTEGERS
        return REPLICATED if integers else TOKENS

    def _apply(
        self,
        node: Node,
        rule: Rule,
        available: dict[str, tuple[Place, ...]],
        step: _Step,
        alive: set[str],
        reached: dict[Available, _Step],
    ) -> None:
        """One op by one rule from one state."""
        moves = []
        cost = step.cost + self._own(node, rule)
        for operand, wanted in zip(node.operands, rule.takes, strict=True):
            if wanted in available[operand]:
                continue
            if operand in self.quantized:
                return
            source, price = self._nearest(operand, available[operand], wanted)
            if price == float("inf"):
                return
            cost += price
            moves.append((operand, source, wanted))
            available[operand] = (*available[operand], wanted)
        available[node.name] = (rule.gives,)
        kept = tuple(sorted((v, tuple(sorted(p, key=repr))) for v, p in available.items() if v in alive))
        if kept not in reached or cost < reached[kept].cost:
            reached[kept] = _Step(cost, rule, tuple(moves), step)

    def _own(self, node: Node, rule: Rule) -> float:
        """Bytes a token for the gradients of parameters that are whole on ranks with parts of them; and next to nothing
        for work that all ranks do, so that of equals the one wins that does it once."""
        widths = self.block.widths(node)
        again = 1e-3 * sum(widths) * (1 / self.ranks if rule.gives == TOKENS else 1.0)
        if rule.name or rule.gives == REPLICATED:
            return again
        numbers = sum(p.elements for p in self.block.params_of(node))
        return again + 4.0 * numbers * sent("all_reduce", self.ranks) / NOMINAL_TOKENS

    def _nearest(self, value: str, places: tuple[Place, ...], wanted: Place) -> tuple[Place, float]:
        """The place from which a value is moved with the fewest bytes, and how many these are, forward and back."""
        type = self.types[value]
        best = (places[0], float("inf"))
        for place in places:
            if place == wanted:
                return place, 0.0
            moves = MOVES.get((place.kind, wanted.kind))
            if moves is not None:
                cost = type.width * type.dtype.bytes * sum(sent(m, self.ranks) for m in moves)
                best = min(best, (place, cost), key=lambda pair: pair[1])
        return best

    def _rebuilt(self, end: _Step) -> Block:
        steps: list[_Step] = []
        step: _Step | None = end
        while step is not None and step.before is not None:
            steps.append(step)
            step = step.before
        nodes: list[Node] = []
        at: dict[tuple[str, Place], str] = {(a.name, self._given(a)): a.name for a in self.block.args}
        types = {a.name: self._typed(a.type, self._given(a)) for a in self.block.args}
        for node, made in zip((*self.block.nodes, None), reversed(steps), strict=True):
            for value, source, wanted in made.moves:
                moved = f"{value}_{wanted.kind}{wanted.dim}"
                op = Redistribute("tp", wanted.kind, wanted.dim)
                operand = at[value, source]
                types[moved] = op.result((types[operand],))
                at[value, wanted] = moved
                nodes.append(Node(moved, op, (operand,), type=types[moved]))
            if node is None or made.rule is None:
                break
            operands = tuple(at[o, p] for o, p in zip(node.operands, made.rule.takes, strict=True))
            types[node.name] = self._typed(node.type, made.rule.gives)
            at[node.name, made.rule.gives] = node.name
            nodes.append(replace(node, operands=operands, type=types[node.name]))
        args = tuple(replace(a, type=types[a.name]) for a in self.block.args)
        return replace(self.block, args=args, nodes=tuple(nodes), result=at[self.block.result, self.target])

    def _typed(self, type: TensorType | None, place: Place) -> TensorType:
        if type is None:
            raise ValueError("layouts are for typed values")
        return type.at("tp", place)
