"""kda: Kimi delta attention, the gated delta rule with a decay for each channel (Kimi Linear, 2025)."""

from __future__ import annotations

import dataclasses
from typing import Self

from hybridc.ir.attrs import Choice, Float, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, lit, quote
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import Check, Fill, Op, Param, Split, StateTensor, Widths, op
from hybridc.ir.ops.convolution import causal_conv1d, convolved
from hybridc.ir.ops.mlp import ACTIVATIONS
from hybridc.ir.ops.norms import GatedRMSNorm
from hybridc.ir.sharding import Sharded, cut


@op("kda", "recurrence")
class KDA(Op):
    """S ← diag(exp(g_t)) S, S ← S + β_t k_t (v_t - k_tᵀ S)ᵀ, y_t = q_tᵀ S per head; q, k, v from a causal convolution.

    β = sigmoid(b); g = -exp(A_log) softplus(f + dt_bias), or with a `lower_bound` lower_bound sigmoid(exp(A_log)
    (f + dt_bias)). Each head's result is normed and gated with z. f and z are projections of rank `gate_rank`, or of
    full rank. Parameters (I = heads head_dim, R = gate_rank or I): in_proj [3 I + heads + 2 R, in] (rows q, k, v, b, f,
    z), f_up and z_up [I, R] when there is a rank, conv [3 I, conv], A_log [heads], dt_bias [I], norm [head_dim] and
    out_proj [in, I].
    """

    heads: int = attr(Int(), doc="heads")
    head_dim: int = attr(Int(), 128, doc="width of a head")
    gate_rank: int = attr(Int(0), 0, doc="rank of the decay's and the gate's projections; 0: full rank")
    conv: int = attr(Int(2), 4, doc="taps of the causal convolution")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "silu", doc="activation behind the convolution")
    lower_bound: float | None = attr(Float(), None, doc="the logs of decays are above this", optional=True)
    norm: GatedRMSNorm | None = attr(
        Record(("gated_rmsnorm",)), None, doc="norm of a head's result that takes the gate", optional=True
    )
    dt_min: float = attr(Float(0.0, strict=True), 0.001, doc="smallest dt at initialisation")
    dt_max: float = attr(Float(0.0, strict=True), 0.1, doc="largest dt at initialisation")
    dt_floor: float = attr(Float(0.0, strict=True), 1e-4, doc="dt at initialisation is at least this")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.lower_bound is not None and self.lower_bound >= 0:
            label = f"expected a number below 0, got {self.lower_bound}"
            check.error("HYB112", "lower_bound", label, "logs of decays are below 0")
        if self.dt_min >= self.dt_max:
            label = f"dt_max {self.dt_max} is not above dt_min {self.dt_min}"
            check.error("HYB112", "dt_max", label, "use dt_min < dt_max")
        if self.norm is not None:
            self.norm.check_groups(self.head_dim, check, "norm")
        return self

    def rows(self) -> tuple[int, ...]:
        """Rows of in_proj: q, k, v, b, f, z."""
        inner = self.heads * self.head_dim
        rank = self.gate_rank or inner
        return inner, inner, inner, self.heads, rank, rank

    def params(self, ins: Widths) -> tuple[Param, ...]:
        rows, inner, rank = self.rows(), self.heads * self.head_dim, self.gate_rank
        out = [Param("in_proj.weight", (sum(rows), ins[0]), Fill("linear", fan_in=ins[0]))]
        if rank:
            out += [Param(f"{n}.weight", (inner, rank), Fill("linear", fan_in=rank)) for n in ("f_up", "z_up")]
        out += [
            Param("conv.weight", (3 * inner, self.conv), Fill("uniform", (self.conv**-0.5,))),
            Param("A_log", (self.heads,), Fill("a_log", (1.0, 16.0)), fp32=True),
            Param("dt_bias", (inner,), Fill("dt_bias", (self.dt_min, self.dt_max, self.dt_floor)), fp32=True),
        ]
        if self.norm is not None:
            out += [dataclasses.replace(p, name=f"norm.{p.name}") for p in self.norm.params((self.head_dim,))]
        return (*out, Param("out_proj.weight", (ins[0], inner), Fill("residual", fan_in=inner)))

    def flops(self, ins: Widths, seq: int) -> float:
        """Projections, the convolution, and per element of the state its decay, reading, update and output."""
        return super().flops(ins, seq) + 7.0 * self.heads * self.head_dim**2

    def saved(self, ins: Widths, seq: int) -> float:
        inner = self.heads * self.head_dim
        return ins[0] + 16 * inner + 2 * self.heads + 2 * self.gate_rank + inner * self.head_dim / min(16, seq)

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        inner = self.heads * self.head_dim
        return (
            StateTensor("conv", 3 * inner * (self.conv - 1), fp32=True),
            StateTensor("ssm", inner * self.head_dim, fp32=True),
        )

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "heads", self.heads, "delta rule heads"),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Heads are cut; projections of low rank stay whole up to their second half."""
        rows, heads, inner = self.rows(), self.heads, self.heads * self.head_dim
        whole = () if self.gate_rank else ((rows[4], heads), (rows[5], heads))
        parts = (*((n, heads) for n in rows[:4]), *whole)
        first = cut(ranks, *parts)
        if self.gate_rank:
            # every rank has both
            sizes, copies = (*first.parts, *rows[4:]), (1, 1, 1, 1, ranks, ranks)
            first = dataclasses.replace(first, parts=sizes, copies=copies)
        channels = cut(ranks, (inner, heads))
        cuts = {"in_proj.weight": first, "conv.weight": cut(ranks, *parts[:3]), "A_log": cut(ranks, (heads, heads))}
        cuts |= dict.fromkeys(("f_up.weight", "z_up.weight", "dt_bias"), channels)
        cuts |= {"out_proj.weight": cut(ranks, (inner, heads), dim=1)}
        return Sharded(dataclasses.replace(self, heads=heads // ranks), cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        if self.norm is None:
            return (inside("sigmoid_gate", self.heads * self.head_dim, "gate", "out_proj"),)
        kernels: tuple[Kernel, ...] = self.norm.by_head(self.head_dim, self.heads, "norm", "out_proj")
        return kernels

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        rows, inner, rank = self.rows(), self.heads * self.head_dim, self.gate_rank
        shown = ", ".join(f"{r} {n}" for r, n in zip(rows, ("q", "k", "v", "b", "f", "z"), strict=True))
        members = [f"self.in_proj = {emit.linear('in_proj', ins[0], sum(rows), parts=rows)}  # {shown} rows"]
        if rank:
            members += [f"self.{name} = {emit.linear(name, rank, inner)}" for name in ("f_up", "z_up")]
        members += [
            f"self.conv = {causal_conv1d(emit, 3 * inner, self.conv, bias=False)}",
            f"self.A_log = nn.Parameter(torch.empty({self.heads}))",
            f"self.dt_bias = nn.Parameter(torch.empty({inner}))",
        ]
        shape = f"({self.heads}, {self.head_dim})"
        f, z = ("self.f_up(f)", "self.z_up(z)") if rank else ("f", "z")
        rate = "self.A_log.float().exp()[:, None]"
        decay = f"-{rate} * F.softplus(f)"
        if self.lower_bound is not None:
            decay = f"{lit(self.lower_bound)} * ({rate} * f).sigmoid()"
        sizes = {"key_dim": self.head_dim, "value_dim": self.head_dim}
        rule = emit.part("gated_delta_rule", **sizes, per_channel=True)
        forward = [
            f"qkv, b, f, z = self.in_proj(x).split(({3 * inner}, {rows[3]}, {rows[4]}, {rows[5]}), dim=-1)",
            f"q, k, v = (t.unflatten(-1, {shape}) for t in {convolved('qkv', self.act)}.chunk(3, dim=-1))",
            f"f = ({f}.float() + self.dt_bias).unflatten(-1, {shape})",
            f"y = {rule}(q, k, v, {decay}, b.float().sigmoid(), ctx, state)",
        ]
        if self.norm is None:
            gated = emit.generated("gate", "y.flatten(-2)", z) or f"y.flatten(-2) * {z}.sigmoid()"
            forward.append(f"return self.out_proj({gated})")
        else:
            members.append(f"self.norm = {self.norm.constructor((self.head_dim,), emit, 'norm')}")
            forward.append(f"return self.out_proj({self.norm.by_heads('y', z, emit)})")
        members.append(f"self.out_proj = {emit.linear('out_proj', inner, ins[0])}")
        shapes = f"conv=({3 * inner}, {self.conv}), ssm=({self.heads}, {self.head_dim}, {self.head_dim})"
        made = f"ops.MambaState(batch, {shapes}, device=device, dtype=dtype)"
        return ClassBody(tuple(members), tuple(forward), ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
