"""mlp: a feed-forward layer, plain or gated (swiglu, geglu)."""

from __future__ import annotations

from hybridc.ir.attrs import Choice, Flag, Float, Int, attr
from hybridc.ir.emit import ClassBody, Emit, call, scaled
from hybridc.ir.ops.base import ZEROS, Fill, Op, Param, Split, Widths, op

ACTIVATIONS = {
    "silu": "F.silu({})",
    "gelu": "F.gelu({})",
    "gelu_tanh": 'F.gelu({}, approximate="tanh")',
    "relu": "F.relu({})",
    "relu2": "F.relu({}).square()",
}
"""How each activation is written in torch."""


@op(
    "mlp",
    swiglu={"act": "silu", "gated": True},
    geglu={"act": "gelu", "gated": True},
)
class MLP(Op):
    """down(act(up(x))), or down(act(gate(x)) · up(x)) when gated (GLU variants: Shazeer, 2020).

    Parameters: gate_up [2 hidden, in] (gate rows first) or up [hidden, in], and down [in, hidden].
    """

    hidden: int = attr(Int(), doc="width inside")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "silu", doc="activation")
    gated: bool = attr(Flag(), False, doc="multiply with a second projection")
    bias: bool = attr(Flag(), False, doc="biases on all projections")
    gate_scale: float = attr(Float(), 1.0, doc="multiplies the gate before its activation")

    def params(self, ins: Widths) -> tuple[Param, ...]:
        first, rows = ("gate_up", 2 * self.hidden) if self.gated else ("up", self.hidden)
        out = [Param(f"{first}.weight", (rows, ins[0]), Fill("linear", fan_in=ins[0]))]
        if self.bias:
            out.append(Param(f"{first}.bias", (rows,), ZEROS))
        out.append(Param("down.weight", (ins[0], self.hidden), Fill("residual", fan_in=self.hidden)))
        if self.bias:
            out.append(Param("down.bias", (ins[0],), ZEROS))
        return tuple(out)

    def saved(self, ins: Widths, seq: int) -> float:
        return ins[0] + (3 if self.gated else 2) * self.hidden

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "hidden", self.hidden, "hidden channels of the mlp"),)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        down = f"self.down = {call('nn.Linear', self.hidden, ins[0], bias=self.bias)}"
        if not self.gated:
            up = f"self.up = {call('nn.Linear', ins[0], self.hidden, bias=self.bias)}"
            inner = ACTIVATIONS[self.act].format(scaled(self.gate_scale, "self.up(x)"))
            return ClassBody((up, down), (f"return self.down({inner})",))
        both = call("nn.Linear", ins[0], 2 * self.hidden, bias=self.bias)
        members = (f"self.gate_up = {both}  # {self.hidden} gate, {self.hidden} up rows", down)
        gate = ACTIVATIONS[self.act].format(scaled(self.gate_scale, "gate"))
        return ClassBody(
            members,
            ("gate, up = self.gate_up(x).chunk(2, dim=-1)", f"return self.down({gate} * up)"),
        )
