"""rg_lru: Griffin's recurrent block, a gated linear recurrence behind a short convolution (De et al., 2024)."""

from __future__ import annotations

import dataclasses
from typing import Self

from hybridc.ir.attrs import Choice, Flag, Float, Int, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, call, lit, quote
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import ZEROS, Check, Fill, Op, Param, Split, StateTensor, Widths, multiple, op
from hybridc.ir.ops.convolution import causal_conv1d
from hybridc.ir.ops.mlp import ACTIVATIONS
from hybridc.ir.sharding import FIRST, Sharded, cut

LOW, HIGH = 0.9, 0.999
"""Between these the decays of open gates start (section 2.4)."""


@op("rg_lru", "recurrence")
class RGLRU(Op):
    """out(act(y) · h), where y and u are projections, h_t = a_t h_{t-1} + sqrt(1 - a_t²) σ(i_t) v_t for each channel,
    v a causal convolution of u, a_t = exp(-c softplus(Λ) σ(r_t)); i and r are projections of v in `blocks` blocks.

    A document's first token has h = σ(i) v. Parameters: in_proj [2 inner, in] (rows y, u), conv [inner, conv],
    input_gate and recurrence_gate [blocks, inner / blocks, inner / blocks] with biases [blocks, inner / blocks],
    Lambda [inner], out_proj [in, inner].
    """

    blocks: int = attr(Int(), doc="blocks of the gates' projections")
    inner: int = attr(Int(), 0, doc="channels inside", derived="dim")
    conv: int = attr(Int(2), 4, doc="taps of the causal convolution")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "gelu_tanh", doc="activation of the branch beside the recurrence")
    c: float = attr(Float(0.0, strict=True), 8.0, doc="how much faster an open recurrence gate forgets")
    conv_bias: bool = attr(Flag(), True, doc="bias on the convolution")
    proj_bias: bool = attr(Flag(), True, doc="biases on in_proj and out_proj")
    init_scale: float = attr(
        Float(0.0, strict=True), 1.0, doc="variance of the first weights of gates and convolution times their fan-in"
    )

    def resolve(self, ins: Widths, check: Check) -> Self:
        inner = self.inner or ins[0]
        if inner % self.blocks:
            label = f"{inner} channels do not divide into {self.blocks} blocks"
            help = f"use a divisor of {inner} for blocks, or {multiple(inner, self.blocks)} for inner"
            check.error("HYB206", "blocks", label, help)
        return dataclasses.replace(self, inner=inner)

    def params(self, ins: Widths) -> tuple[Param, ...]:
        dim, inner, size = ins[0], self.inner, self.inner // self.blocks
        out = [Param("in_proj.weight", (2 * inner, dim), Fill("linear", fan_in=dim))]
        if self.proj_bias:
            out.append(Param("in_proj.bias", (2 * inner,), ZEROS))
        out.append(Param("conv.weight", (inner, self.conv), self._normal(self.conv)))
        if self.conv_bias:
            out.append(Param("conv.bias", (inner,), ZEROS))
        for gate in ("input_gate", "recurrence_gate"):
            out.append(Param(f"{gate}.weight", (self.blocks, size, size), self._normal(size)))
            out.append(Param(f"{gate}.bias", (self.blocks, size), ZEROS))
        out += [
            Param("Lambda", (inner,), Fill("softplus_decay", (LOW, HIGH, self.c)), fp32=True),
            Param("out_proj.weight", (dim, inner), Fill("residual", fan_in=inner)),
        ]
        if self.proj_bias:
            out.append(Param("out_proj.bias", (dim,), ZEROS))
        return tuple(out)

    def _normal(self, fan_in: int) -> Fill:
        return Fill("normal", ((self.init_scale / fan_in) ** 0.5,))

    def flops(self, ins: Widths, seq: int) -> float:
        """Projections, convolution, gates, and per channel: two sigmoids, decay, input, update and the gating."""
        dense = 2.0 * self.inner * (3 * ins[0] + self.conv + 2 * self.inner // self.blocks)
        return dense + 14.0 * self.inner

    def saved(self, ins: Widths, seq: int) -> float:
        return ins[0] + 16.0 * self.inner

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        return (
            StateTensor("conv", self.inner * (self.conv - 1), fp32=True),
            StateTensor("ssm", self.inner, fp32=True),
        )

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "blocks", self.blocks, "blocks of the recurrent unit"),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Blocks are cut, with their channels."""
        channels = (self.inner, self.blocks)
        both, each = cut(ranks, channels, channels), cut(ranks, channels)
        cuts = {"in_proj.weight": both, "in_proj.bias": both, "conv.weight": each, "conv.bias": each, "Lambda": each}
        blocks = cut(ranks, (self.blocks, self.blocks))
        cuts |= {f"{gate}.{p}": blocks for gate in ("input_gate", "recurrence_gate") for p in ("weight", "bias")}
        cuts |= {"out_proj.weight": cut(ranks, channels, dim=1), "out_proj.bias": FIRST}
        op = dataclasses.replace(self, inner=self.inner // ranks, blocks=self.blocks // ranks)
        return Sharded(op, cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        return (inside(f"{self.act}_gate", self.inner, "gate", "out_proj"),)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        dim, inner = ins[0], self.inner
        both = emit.linear("in_proj", dim, 2 * inner, bias=self.proj_bias, parts=(inner,) * 2)
        members = (
            f"self.in_proj = {both}  # {inner} y, {inner} u rows",
            f"self.conv = {causal_conv1d(emit, inner, self.conv, bias=self.conv_bias)}",
            f"self.input_gate = {call(emit.part('block_linear'), inner, self.blocks)}",
            f"self.recurrence_gate = {call(emit.part('block_linear'), inner, self.blocks)}",
            f"self.Lambda = nn.Parameter(torch.empty({inner}))",
            f"self.out_proj = {emit.linear('out_proj', inner, dim, bias=self.proj_bias)}",
        )
        c = "" if self.c == 8.0 else f", c={lit(self.c)}"
        unit = emit.part("rg_lru", channels=inner)
        gated = emit.generated("gate", "h", "y") or f"{ACTIVATIONS[self.act].format('y')} * h"
        forward = (
            "y, u = self.in_proj(x).chunk(2, dim=-1)",
            "v = self.conv(u, ctx, state)",
            f"h = {unit}(v, self.input_gate(v), self.recurrence_gate(v), self.Lambda, ctx, state{c})",
            f"return self.out_proj({gated})",
        )
        made = f"ops.MambaState(batch, conv=({inner}, {self.conv}), ssm=({inner},), device=device, dtype=dtype)"
        return ClassBody(members, forward, ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
