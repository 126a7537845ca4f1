"""mlp: a feed-forward layer, plain or gated (swiglu, geglu)."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from hybridc.ir.attrs import Choice, Flag, Float, Int, Record, attr
from hybridc.ir.emit import ClassBody, Emit, scaled
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import ZEROS, Check, Fill, Op, Param, Split, Widths, op
from hybridc.ir.ops.lora import Lora
from hybridc.ir.ops.norms import applied, over
from hybridc.ir.sharding import FIRST, Sharded, cut

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
    "mlp",
    swiglu={"act": "silu", "gated": True},
    geglu={"act": "gelu", "gated": True},
)
class MLP(Op):
    """down(act(up(x))), or down(act(gate(x)) · up(x)) when gated (GLU variants: Shazeer, 2020).

    Parameters: gate_up [2 hidden, in] (gate rows first) or up [hidden, in], and down [out_dim, hidden].
    """

    hidden: int = attr(Int(), doc="width inside")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "silu", doc="activation")
    gated: bool = attr(Flag(), False, doc="multiply with a second projection")
    bias: bool = attr(Flag(), False, doc="biases on all projections")
    gate_scale: float = attr(Float(), 1.0, doc="multiplies the gate before its activation")
    down_norm: Any = attr(
        Record(("rmsnorm", "layernorm")), None, doc="norm in front of the down projection", optional=True
    )
    out_dim: int = attr(Int(), 0, doc="width of the result", derived="dim")
    adapter: Lora | None = attr(Record(("lora",)), None, doc="adapter on the first projection", optional=True)

    def resolve(self, ins: Widths, check: Check) -> Self:
        return dataclasses.replace(self, out_dim=self.out_dim or ins[0])

    def width(self, ins: Widths) -> int:
        return self.out_dim or ins[0]

    def params(self, ins: Widths) -> tuple[Param, ...]:
        dim = self.width(ins)
        first, rows = ("gate_up", 2 * self.hidden) if self.gated else ("up", self.hidden)
        out = [Param(f"{first}.weight", (rows, ins[0]), Fill("linear", fan_in=ins[0]))]
        if self.bias:
            out.append(Param(f"{first}.bias", (rows,), ZEROS))
        if self.adapter is not None:
            out += self.adapter.adapter(ins[0], (rows,))
        if self.down_norm is not None:
            inner = self.down_norm.params((self.hidden,))
            out += [dataclasses.replace(p, name=f"down_norm.{p.name}") for p in inner]
        out.append(Param("down.weight", (dim, self.hidden), Fill("residual", fan_in=self.hidden)))
        if self.bias:
            out.append(Param("down.bias", (dim,), ZEROS))
        return tuple(out)

    def saved(self, ins: Widths, seq: int) -> float:
        return ins[0] + (3 if self.gated else 2) * self.hidden

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "hidden", self.hidden, "hidden channels of the mlp"),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        hidden, norm = (self.hidden, self.hidden), self.down_norm
        first = cut(ranks, *(hidden,) * (2 if self.gated else 1))
        cuts = dict.fromkeys(("gate_up.weight", "gate_up.bias", "up.weight", "up.bias", "adapter.up.0.weight"), first)
        cuts |= {f"down_norm.{p.name}": cut(ranks, hidden) for p in (norm.params(hidden) if norm is not None else ())}
        cuts |= {"down.weight": cut(ranks, hidden, dim=1), "down.bias": FIRST}
        made = dataclasses.replace(self, hidden=self.hidden // ranks, down_norm=over(norm, ranks))
        return Sharded(made, cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("gate_up" if self.gated else "up",) if self.adapter is None else ()

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        name = f"{self.act}_glu" if self.gated else self.act
        scale: dict[str, float] = {}
        if self.gate_scale != 1.0:
            name, scale = f"scaled_{name}", {"factor": self.gate_scale}
        act = inside(name, self.hidden, "act", "" if self.down_norm is not None else "down", constants=scale)
        norms = self.down_norm.kernels((self.hidden,)) if self.down_norm is not None else ()
        return (act, *(k.at("down_norm", "down") for k in norms))

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        down = f"self.down = {emit.linear('down', self.hidden, self.width(ins), bias=self.bias)}"
        inner = "inside"
        norm: tuple[str, ...] = ()
        if self.down_norm is not None:
            norm = (f"self.down_norm = {self.down_norm.constructor((self.hidden,), emit, 'down_norm')}",)
            inner = applied(self.down_norm, "down_norm", "inside", emit)
        added = ""
        if self.adapter is not None:
            norm += (f"self.adapter = {self.adapter.construct(ins[0], (self.hidden * (2 if self.gated else 1),))}",)
            added = " + self.adapter(x)"
        if not self.gated:
            up = f"self.up = {emit.linear('up', ins[0], self.hidden, bias=self.bias)}"
            first = f"(self.up(x){added})" if added and self.gate_scale != 1.0 else f"self.up(x){added}"
            hidden = emit.generated("act", f"self.up(x){added}")
            hidden = hidden or ACTIVATIONS[self.act].format(scaled(self.gate_scale, first))
            return ClassBody((up, *norm, down), (f"return self.down({inner.replace('inside', hidden)})",))
        both = emit.linear("gate_up", ins[0], 2 * self.hidden, bias=self.bias, parts=(self.hidden, self.hidden))
        members = (f"self.gate_up = {both}  # {self.hidden} gate, {self.hidden} up rows", *norm, down)
        gate = ACTIVATIONS[self.act].format(scaled(self.gate_scale, "gate"))
        if made := emit.generated("act", f"self.gate_up(x){added}"):
            return ClassBody(members, (f"return self.down({inner.replace('inside', made)})",))
        fused = f"(self.gate_up(x){added})" if added else "self.gate_up(x)"
        forward = [f"gate, up = {fused}.chunk(2, dim=-1)"]
        if self.down_norm is None:
            return ClassBody(members, (*forward, f"return self.down({gate} * up)"))
        return ClassBody(members, (*forward, f"inside = {gate} * up", f"return self.down({inner})"))
