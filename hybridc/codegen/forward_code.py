"""The statements of a block's forward: SSA values back to lines that a person would have written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hybridc.codegen.group_code import kernel_call, outside, results
from hybridc.codegen.place import enter
from hybridc.ir.emit import Code, Emit, broken
from hybridc.ir.graph import Block, Node
from hybridc.ir.kernels import groups
from hybridc.ir.ops.basic import Add
from hybridc.ir.ops.embedding import LMHead

WIDTH = 116
"""Emitted lines are kept to about this many columns."""


@dataclass
class _Forward:
    """A value used once is written where it is used; the residual stream keeps the name `x`; others get a line."""

    block: Block
    emit: Emit
    lines: list[str] = field(default_factory=list)
    codes: dict[str, Code] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    stream: set[str] = field(default_factory=set)
    held: str = "x"

    def run(self) -> list[str]:
        uses: dict[str, int] = {}
        for operand in (*(o for n in self.block.nodes for o in n.operands), self.block.result):
            uses[operand] = uses.get(operand, 0) + 1
        self.stream = stream = _stream(self.block)
        fused = groups(self.block)
        order = {node.name: i for i, node in enumerate(self.block.nodes)}
        places = {n.name: max(order[m.name] for m in fused.get(n.kernel, (n,))) for n in self.block.nodes}
        for node in self.block.nodes:
            for operand in node.operands:
                self.last[operand] = max(places[node.name], self.last.get(operand, 0))
        for arg in self.block.args:
            self.codes[arg.name] = Code(arg.name)
            self.taken.add(arg.name)
        for node in self.block.nodes:
            if node.name in self.codes:
                continue
            position = places[node.name]
            members = fused.get(node.kernel, (node,))
            operands = outside(members) if node.kernel else list(node.operands)
            if not all(o in self.codes for o in operands):
                continue  # written at a later member of the group, where all that it reads is there
            made = results(members) if node.kernel else [node]
            code = self._expression(node, members, operands)
            if len(made) > 1:
                self._assign_all(made, code, position)
            elif made[0].name in stream and made[0].name != self.block.result:
                self._advance(made[0], code, position)
            elif uses[made[0].name] == 1 and not made[0].hint:
                self.codes[made[0].name] = code
                self.pending.add(made[0].name)
            else:
                self._assign(made[0], code)
            for member in members:
                self.codes.setdefault(member.name, Code(""))  # of no use but to the group
        self.lines.append(f"return {self.codes[self.block.result].text}")
        return self.lines

    def _expression(self, node: Node, members: tuple[Node, ...], operands: list[str]) -> Code:
        """The expression of a node, or of its group; operands that would make it too long get lines of their own
        first."""
        enter(self.emit, self.block, node)
        widths = self.block.widths(node)
        while True:
            if node.kernel:
                code = Code(kernel_call(self.block, node.kernel, members, self.codes))
            else:
                given = tuple(self.codes[o] for o in operands)
                code = node.op.call(f"self.{node.path}", given, widths, self.emit)
            written = [o for o in operands if o in self.pending]
            if len(code.text) < WIDTH - 24 or not written:
                self.pending -= set(written)
                return code
            longest = max(written, key=lambda o: len(self.codes[o].text))
            self._assign(next(n for n in self.block.nodes if n.name == longest), self.codes[longest])

    def _assign_all(self, made: list[Node], code: Code, position: int) -> None:
        """The values that a group gives, in one line: the stream's next one, and what is made of it."""
        self._flush()
        names = []
        for node in made:
            if node.name in self.stream and node.name != self.block.result and self._free(position):
                names.append("x")
                self.held = node.name
            else:
                names.append(self._name(node))
            self.codes[node.name] = Code(names[-1])
        self.lines.append(f"{', '.join(names)} = {code.text}")

    def _name(self, node: Node) -> str:
        """A name for a value that none has yet."""
        stem = node.hint or "h"
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name

    def _assign(self, node: Node, code: Code) -> None:
        name = self._name(node)
        self.lines.append(f"{name} = {code.text}")
        self.codes[node.name] = Code(name)
        self.pending.discard(node.name)

    def _flush(self) -> None:
        """Gives lines to the expressions that wait for their use: what they read is about to change its name."""
        for name in sorted(self.pending):
            self._assign(next(n for n in self.block.nodes if n.name == name), self.codes[name])

    def _free(self, position: int) -> bool:
        """Whether `x` can take the stream's next value: not where what it holds (`held`) is still to be read."""
        needed = self.held == self.block.result or self.last.get(self.held, -1) > position
        return not needed and "x" in self.taken

    def _advance(self, node: Node, code: Code, position: int) -> None:
        """The stream's next value: `x` again if that is free."""
        self._flush()
        if self._free(position):
            self.lines.append(f"x = {code.text}")
            self.codes[node.name] = Code("x")
            self.held = node.name
        else:
            self._assign(node, code)


def _stream(block: Block) -> set[str]:
    """The values that the residual stream takes: the result and what it was added to, back to the argument."""
    nodes = {n.name: n for n in block.nodes}
    out: set[str] = set()
    name = block.result
    while name in nodes and isinstance(nodes[name].op, Add):
        out.add(name)
        name = nodes[name].operands[0]
    return out


def forward_lines(block: Block, emit: Emit) -> list[str]:
    """The body of `forward`, without indentation."""
    return _Forward(block, emit).run()


def loss_lines(block: Block, emit: Emit) -> list[str]:
    """The body of the head's `loss`, without indentation: the loss of `targets` without all logits at a time. Empty for
    a head that ends in anything but an `lm_head`, and where there is no kernel for it."""
    last = block.nodes[-1] if block.nodes else None
    if last is None or not isinstance(last.op, LMHead) or last.name != block.result:
        return []
    enter(emit, block, last)
    if not last.op.loss(f"self.{last.path}", "x", "targets", emit):
        return []
    *lines, returned = _Forward(replace(block, nodes=block.nodes[:-1], result=last.operands[0]), emit).run()
    enter(emit, block, last)
    made = last.op.loss(f"self.{last.path}", returned.removeprefix("return "), "targets", emit)
    return [*lines, *broken(f"return {made}", WIDTH - 8)]
