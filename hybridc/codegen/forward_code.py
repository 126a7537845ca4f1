"""The statements of a block's forward: SSA values back to lines that a person would have written."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybridc.ir.emit import Code, Emit
from hybridc.ir.graph import Block, Node
from hybridc.ir.ops.basic import Add

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
    held: str = "x"

    def run(self) -> list[str]:
        uses: dict[str, int] = {}
        for operand in (*(o for n in self.block.nodes for o in n.operands), self.block.result):
            uses[operand] = uses.get(operand, 0) + 1
        stream = _stream(self.block)
        self.last = {operand: i for i, node in enumerate(self.block.nodes) for operand in node.operands}
        for arg in self.block.args:
            self.codes[arg.name] = Code(arg.name)
            self.taken.add(arg.name)
        for position, node in enumerate(self.block.nodes):
            code = self._expression(node)
            if node.name in stream and node.name != self.block.result:
                self._advance(node, code, position)
            elif uses[node.name] == 1 and not node.hint:
                self.codes[node.name] = code
                self.pending.add(node.name)
            else:
                self._assign(node, code)
        self.lines.append(f"return {self.codes[self.block.result].text}")
        return self.lines

    def _expression(self, node: Node) -> Code:
        """The node's expression; operands that would make it too long get lines of their own first."""
        self.emit.path = node.path
        widths = self.block.widths(node)
        while True:
            code = node.op.call(f"self.{node.path}", tuple(self.codes[o] for o in node.operands), widths, self.emit)
            written = [o for o in node.operands if o in self.pending]
            if len(code.text) < WIDTH - 24 or not written:
                self.pending -= set(written)
                return code
            longest = max(written, key=lambda o: len(self.codes[o].text))
            self._assign(next(n for n in self.block.nodes if n.name == longest), self.codes[longest])

    def _assign(self, node: Node, code: Code) -> None:
        stem = node.hint or "h"
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        self.lines.append(f"{name} = {code.text}")
        self.codes[node.name] = Code(name)
        self.pending.discard(node.name)

    def _advance(self, node: Node, code: Code, position: int) -> None:
        """The stream's next value: `x` again, unless what `x` holds (`held`) is still to be read."""
        for name in sorted(self.pending):
            self._assign(next(n for n in self.block.nodes if n.name == name), self.codes[name])
        needed = self.held == self.block.result or self.last.get(self.held, -1) > position
        if needed or "x" not in self.taken:
            self._assign(node, code)
        else:
            self.lines.append(f"x = {code.text}")
            self.codes[node.name] = Code("x")
            self.held = node.name


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
