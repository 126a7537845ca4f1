"""lightning_attention: linear attention with a fixed decay for each head (Qin et al., 2024; MiniMax-01, 2025)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from hybridc.ir.attrs import Choice, Float, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, quote
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import Check, Fill, Op, Param, Split, StateTensor, Widths, op
from hybridc.ir.ops.mlp import ACTIVATIONS
from hybridc.ir.ops.norms import RMSNorm, applied, over
from hybridc.ir.sharding import Sharded, cut


@op("lightning_attention", "recurrence")
class LightningAttention(Op):
    """y_t = q_t Σ over s <= t of exp(-slope (t - s)) k_s v_sᵀ per head, normed, gated with a sigmoid, projected.

    Queries, keys and values go through `act`; head h of H has the slope slope_scale · 2^(-8 (h + 1) / H), as in ALiBi.
    Parameters: in_proj [4 I, in] (rows q, k, v, gate; I = heads head_dim), norm [I], out_proj [in, I].
    """

    layerwise: ClassVar[tuple[str, ...]] = ("slope_scale",)

    heads: int = attr(Int(), doc="heads")
    head_dim: int = attr(Int(), 0, doc="width of a head", derived="dim / heads")
    slope_scale: float = attr(Float(0.0), 1.0, doc="multiplies the slopes of all heads")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "silu", doc="activation of queries, keys and values")
    norm: RMSNorm | None = attr(Record(("rmsnorm",)), None, doc="norm of all heads' results", optional=True)
    chunk: int = attr(Int(), 256, doc="tokens of a chunk in the chunked form; changes no number")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if not self.head_dim and ins[0] % self.heads:
            label = f"width {ins[0]} does not divide into {self.heads} heads"
            check.error("HYB201", "heads", label, f"use a divisor of {ins[0]} for heads, or give head_dim")
        return dataclasses.replace(self, head_dim=self.head_dim or max(1, ins[0] // self.heads))

    def inner(self) -> int:
        """Channels of all heads."""
        return self.heads * self.head_dim

    def params(self, ins: Widths) -> tuple[Param, ...]:
        inner = self.inner()
        out = [Param("in_proj.weight", (4 * inner, ins[0]), Fill("linear", fan_in=ins[0]))]
        if self.norm is not None:
            out += [dataclasses.replace(p, name=f"norm.{p.name}") for p in self.norm.params((inner,))]
        out.append(Param("out_proj.weight", (ins[0], inner), Fill("residual", fan_in=inner)))
        return tuple(out)

    def flops(self, ins: Widths, seq: int) -> float:
        """Projections, scores and weighted values within a chunk, and the states between chunks."""
        within = 4.0 * self.inner() * (min(self.chunk, seq) + 1) / 2
        return super().flops(ins, seq) + within + 4.0 * self.inner() * self.head_dim

    def saved(self, ins: Widths, seq: int) -> float:
        return ins[0] + 9 * self.inner() + self.inner() * self.head_dim / min(self.chunk, seq)

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        return (StateTensor("ssm", self.inner() * self.head_dim, fp32=True),)

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "heads", self.heads, "linear attention heads"),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Heads are cut, each with its own slope of all heads'."""
        inner = (self.inner(), self.heads)
        cuts = {"in_proj.weight": cut(ranks, *(inner,) * 4), "out_proj.weight": cut(ranks, inner, dim=1)}
        cuts |= {"norm.weight": cut(ranks, inner)}
        attributes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        attributes |= {"heads": self.heads // ranks, "norm": over(self.norm, ranks), "whole": self.heads}
        return Sharded(LightningHeads(**attributes), cuts)

    def slopes(self, scale: str, emit: Emit) -> str:
        """The expression of its heads' slopes."""
        return f"{emit.part('alibi_slopes')}({self.heads}, {scale}, x.device)"

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        norms = self.norm.kernels((self.inner(),)) if self.norm is not None else ()
        return (*(k.at("norm") for k in norms), inside("sigmoid_gate", self.inner(), "gate", "out_proj"))

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        inner, shape = self.inner(), f"({self.heads}, {self.head_dim})"
        scale = emit.number("slope_scale", self.slope_scale)
        rows = (inner,) * 4
        members = [
            f"self.in_proj = {emit.linear('in_proj', ins[0], 4 * inner, parts=rows)}  # {inner} q, k, v and gate rows",
            f"self.out_proj = {emit.linear('out_proj', inner, ins[0])}",
        ]
        rule = emit.part("lightning_attention", heads=self.heads, head_dim=self.head_dim)
        act = ACTIVATIONS[self.act].format("qkv")
        y = "y.flatten(-2)"
        if self.norm is not None:
            members.append(f"self.norm = {self.norm.constructor((inner,), emit, 'norm')}")
            y = applied(self.norm, "norm", "y.flatten(-2)", emit)
        forward = (
            f"qkv, gate = self.in_proj(x).split(({3 * inner}, {inner}), dim=-1)",
            f"q, k, v = (t.unflatten(-1, {shape}) for t in {act}.chunk(3, dim=-1))",
            f"slopes = {self.slopes(scale, emit)}",
            f"y = {rule}(q, k, v, slopes, ctx, state, chunk={self.chunk})",
            f"return self.out_proj({emit.generated('gate', y, 'gate') or f'gate.sigmoid() * {y}'})",
        )
        made = f"ops.ScanState(batch, ssm=({self.heads}, {self.head_dim}, {self.head_dim}), device=device, dtype=dtype)"
        return ClassBody(tuple(members), forward, ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)


@op("lightning_heads", "recurrence")
class LightningHeads(LightningAttention):
    """One rank's heads of a `lightning_attention` of `whole` heads."""

    inserted: ClassVar[bool] = True

    whole: int = attr(Int(), 0, doc="heads of all ranks", derived="heads")

    def slopes(self, scale: str, emit: Emit) -> str:
        return f"ctx.tp.slice({emit.part('alibi_slopes')}({self.whole}, {scale}, x.device), dim=0)"
