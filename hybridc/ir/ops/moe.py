"""moe: a mixture of feed-forward experts with a top-k router."""

from __future__ import annotations

import dataclasses
from typing import Self

from hybridc.ir.attrs import Choice, Flag, Float, Int, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, call, lit, quote
from hybridc.ir.ops.base import Check, Fill, Op, Param, Split, Widths, op
from hybridc.ir.ops.mlp import ACTIVATIONS, MLP


@op("moe")
class MoE(Op):
    """Σ over the top_k experts of softmax(router x) · expert(x), and a shared expert when `shared` is not 0.

    `renormalize` makes the top_k weights sum to 1. Parameters: router [experts, in] (fp32), experts.gate_up
    [experts, 2 hidden, in] or experts.up [experts, hidden, in], experts.down [experts, in, hidden].
    """

    experts: int = attr(Int(), doc="number of experts")
    hidden: int = attr(Int(), doc="width inside an expert")
    top_k: int = attr(Int(), doc="experts that a token visits")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "silu", doc="activation")
    gated: bool = attr(Flag(), True, doc="multiply with a second projection")
    renormalize: bool = attr(Flag(), True, doc="make the weights of the chosen experts sum to 1")
    shared: int = attr(Int(0), 0, doc="width inside an expert that every token visits; 0: none")
    aux_coef: float = attr(Float(0.0), 0.0, doc="coefficient of the load-balancing loss (Fedus et al., 2021)")
    z_coef: float = attr(Float(0.0), 0.0, doc="coefficient of the router z-loss (Zoph et al., 2022)")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.top_k > self.experts:
            check.error(
                "HYB207",
                "top_k",
                f"top_k {self.top_k} is more than the {self.experts} experts",
                f"use {self.experts} or less for top_k",
            )
        return self

    def shared_mlp(self) -> MLP:
        """The shared expert as an op of its own."""
        return MLP(self.shared, act=self.act, gated=self.gated)

    def params(self, ins: Widths) -> tuple[Param, ...]:
        first, rows = ("gate_up", 2 * self.hidden) if self.gated else ("up", self.hidden)
        down = Fill("residual", fan_in=self.hidden)
        out = [
            Param("router.weight", (self.experts, ins[0]), Fill("linear", fan_in=ins[0]), fp32=True),
            Param(f"experts.{first}", (self.experts, rows, ins[0]), Fill("linear", fan_in=ins[0])),
            Param("experts.down", (self.experts, ins[0], self.hidden), down),
        ]
        if self.shared:
            out += [dataclasses.replace(p, name=f"shared.{p.name}") for p in self.shared_mlp().params(ins)]
        return tuple(out)

    def flops(self, ins: Widths, seq: int) -> float:
        """Router, shared expert and the top_k experts that a token visits."""
        expert = 2.0 * ins[0] * self.hidden * (3 if self.gated else 2)
        return super().flops(ins, seq) + self.top_k * expert

    def saved(self, ins: Widths, seq: int) -> float:
        inside = (3 if self.gated else 2) * (self.top_k * self.hidden + self.shared)
        return ins[0] + self.experts + self.top_k * ins[0] + inside

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        out = [
            Split("ep", "experts", self.experts, "experts"),
            Split("tp", "hidden", self.hidden, "hidden channels of the experts"),
        ]
        if self.shared:
            out.append(Split("tp", "shared", self.shared, "hidden channels of the shared expert"))
        return tuple(out)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        experts = call("ops.Experts", self.experts, ins[0], self.hidden, act=quote(self.act), gated=self.gated)
        members = (
            f"self.router = {call('nn.Linear', ins[0], self.experts, bias=False)}",
            f"self.experts = {experts}",
        )
        aux = f"experts={self.experts}, aux_coef={lit(self.aux_coef)}, z_coef={lit(self.z_coef)}"
        forward = [
            "logits = F.linear(x.float(), self.router.weight.float())",
            f"weights, ids = ops.softmax_topk(logits, {self.top_k}, renormalize={self.renormalize})",
            f"ctx.router_stats({quote(emit.path)}, logits, ids, {aux})",
        ]
        routed = "self.experts(x, weights.to(x.dtype), ids)"
        inner = (("shared", self.shared_mlp().body(ins, emit)),) if self.shared else ()
        forward.append(f"return {routed} + self.shared(x)" if self.shared else f"return {routed}")
        return ClassBody(members, tuple(forward), ("x", "ctx"), inner=inner)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx)", ATOM)
