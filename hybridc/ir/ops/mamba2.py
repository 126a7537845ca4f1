"""mamba2: the state-space duality mixer of Mamba-2 (Dao and Gu, 2024)."""

from __future__ import annotations

import dataclasses
import math
from typing import Self

from hybridc.ir.attrs import Flag, Float, Floats, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, lit, quote, scaled
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import ONES, ZEROS, Check, Fill, Op, Param, Split, StateTensor, Widths, multiple, op
from hybridc.ir.ops.convolution import causal_conv1d, convolved
from hybridc.ir.ops.norms import GatedRMSNorm
from hybridc.ir.sharding import FIRST, Sharded, cut, local


@op("mamba2", "recurrence")
class Mamba2(Op):
    """h_t = exp(dt_t A) h_{t-1} + dt_t B_t ⊗ x_t; y_t = C_t h_t + D x_t, per head, with x, B and C from a causal
    convolution.

    `groups` share B and C among heads. The result is gated with silu(z), inside `norm` when there is one. Parameters:
    in_proj [2 I + 2 G N + H, in] (rows z, x, B, C, dt; I = heads head_dim), conv [I + 2 G N, conv], A_log, D, dt_bias
    [heads], norm [I], out_proj [in, I].
    """

    heads: int = attr(Int(), doc="heads")
    head_dim: int = attr(Int(), 64, doc="channels of a head")
    state: int = attr(Int(), 128, doc="state size of a channel")
    groups: int = attr(Int(), 1, doc="groups of heads that share B and C")
    conv: int = attr(Int(2), 4, doc="taps of the causal convolution")
    chunk: int = attr(Int(), 256, doc="tokens of a chunk in the chunked form; changes no number")
    conv_bias: bool = attr(Flag(), True, doc="bias on the convolution")
    proj_bias: bool = attr(Flag(), False, doc="bias on in_proj")
    out_bias: bool = attr(Flag(), False, doc="bias on out_proj")
    dt_limit: tuple[float, float] = attr(Floats(2, infinite=True), (0.0, math.inf), doc="dt is clamped to this range")
    norm: GatedRMSNorm | None = attr(
        Record(("gated_rmsnorm",)), None, doc="norm that takes the gate; none: y silu(z)", optional=True
    )
    in_scales: tuple[float, ...] | None = attr(
        Floats(5), None, doc="multiply the z, x, B, C and dt parts of in_proj's result", optional=True
    )
    dt_min: float = attr(Float(0.0, strict=True), 0.001, doc="smallest dt at initialisation")
    dt_max: float = attr(Float(0.0, strict=True), 0.1, doc="largest dt at initialisation")
    dt_floor: float = attr(Float(0.0, strict=True), 1e-4, doc="dt at initialisation is at least this")

    def inner(self) -> int:
        """Channels of x: heads times head_dim."""
        return self.heads * self.head_dim

    def parts(self) -> tuple[int, int, int, int, int]:
        """Rows of in_proj: z, x, B, C, dt."""
        return self.inner(), self.inner(), self.groups * self.state, self.groups * self.state, self.heads

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.heads % self.groups:
            check.error(
                "HYB204",
                "groups",
                f"{self.heads} heads do not divide into {self.groups} groups",
                f"use a divisor of {self.heads} for groups, or {multiple(self.heads, self.groups)} heads",
            )
        if self.norm is not None:
            self.norm.check_groups(self.inner(), check, "norm")
        low, high = self.dt_limit
        if not 0.0 <= low < high:
            check.error("HYB112", "dt_limit", f"({low}, {high}) is not a range of step sizes", "use 0 <= low < high")
        if self.dt_min >= self.dt_max:
            check.error(
                "HYB112", "dt_max", f"dt_max {self.dt_max} is not above dt_min {self.dt_min}", "use dt_min < dt_max"
            )
        return self

    def params(self, ins: Widths) -> tuple[Param, ...]:
        inner, (_, _, b, c, _) = self.inner(), self.parts()
        channels = inner + b + c
        out = [Param("in_proj.weight", (sum(self.parts()), ins[0]), Fill("linear", fan_in=ins[0]))]
        if self.proj_bias:
            out.append(Param("in_proj.bias", (sum(self.parts()),), ZEROS))
        out.append(Param("conv.weight", (channels, self.conv), Fill("uniform", (self.conv**-0.5,))))
        if self.conv_bias:
            out.append(Param("conv.bias", (channels,), ZEROS))
        out += [
            Param("A_log", (self.heads,), Fill("a_log", (1.0, 16.0)), fp32=True),
            Param("D", (self.heads,), ONES, fp32=True),
            Param("dt_bias", (self.heads,), Fill("dt_bias", (self.dt_min, self.dt_max, self.dt_floor)), fp32=True),
        ]
        if self.norm is not None:
            out.append(Param("norm.weight", (inner,), ONES))
        out.append(Param("out_proj.weight", (ins[0], inner), Fill("residual", fan_in=inner)))
        if self.out_bias:
            out.append(Param("out_proj.bias", (ins[0],), ZEROS))
        return tuple(out)

    def flops(self, ins: Widths, seq: int) -> float:
        """Projections and convolution, and the chunked form: in a chunk L of tokens C Bᵀ and its product with x, then
        states in and out."""
        inner, chunk = self.inner(), min(self.chunk, seq)
        scan = 2.0 * chunk * self.state * self.groups + 2.0 * chunk * inner + 4.0 * self.state * inner
        return super().flops(ins, seq) + scan

    def saved(self, ins: Widths, seq: int) -> float:
        z, x, b, c, dt = self.parts()
        states = self.inner() * self.state / min(self.chunk, seq)
        return ins[0] + z + 3 * (x + b + c) + dt + 2 * x + states

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        _, x, b, c, _ = self.parts()
        return (
            StateTensor("conv", (x + b + c) * (self.conv - 1), fp32=True),
            StateTensor("ssm", self.inner() * self.state, fp32=True),
        )

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (
            Split("tp", "heads", self.heads, "mamba2 heads"),
            Split("tp", "groups", self.groups, "mamba2 groups", replicable=True),
            *(
                ()
                if self.norm is None
                else (Split("tp", "norm", self.norm.groups, "groups of the norm", replicable=True),)
            ),
        )

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Heads are cut; groups that are fewer than ranks are had by several."""
        z, x, b, c, dt = self.parts()
        heads, groups = self.heads, self.groups
        rows = cut(ranks, (z, heads), (x, heads), (b, groups), (c, groups), (dt, heads))
        channels = cut(ranks, (x, heads), (b, groups), (c, groups))
        cuts = {"in_proj.weight": rows, "in_proj.bias": rows, "conv.weight": channels, "conv.bias": channels}
        cuts |= dict.fromkeys(("A_log", "D", "dt_bias"), cut(ranks, (heads, heads)))
        cuts |= {"norm.weight": cut(ranks, (x, heads))}
        cuts |= {"out_proj.weight": cut(ranks, (x, heads), dim=1), "out_proj.bias": FIRST}
        norm = None if self.norm is None else self.norm.over(ranks)
        return Sharded(dataclasses.replace(self, heads=heads // ranks, groups=local(groups, ranks), norm=norm), cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        if self.norm is None:
            return (inside("silu_gate", self.inner(), "gate", "out_proj"),)
        return tuple(k.at("norm", "out_proj") for k in self.norm.kernels((self.inner(),)))

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        z, x, b, c, dt = self.parts()
        channels, rows = x + b + c, sum(self.parts())
        members = [
            f"self.in_proj = {emit.linear('in_proj', ins[0], rows, bias=self.proj_bias, parts=self.parts())}"
            f"  # {z} z, {x} x, {b} B, {c} C, {dt} dt rows",
            f"self.conv = {causal_conv1d(emit, channels, self.conv, bias=self.conv_bias)}",
            *(f"self.{name} = nn.Parameter(torch.empty({self.heads}))" for name in ("A_log", "D", "dt_bias")),
        ]
        forward = []
        if self.in_scales is None:
            forward.append(f"z, xbc, dt = self.in_proj(x).split(({z}, {channels}, {dt}), dim=-1)")
        else:
            sz, sx, sb, sc, sdt = self.in_scales
            forward.append(f"z, u, b, c, dt = self.in_proj(x).split(({z}, {x}, {b}, {c}, {dt}), dim=-1)")
            forward.append(f"xbc = torch.cat(({scaled(sx, 'u')}, {scaled(sb, 'b')}, {scaled(sc, 'c')}), dim=-1)")
            if sz != 1.0:
                forward.append(f"z = {scaled(sz, 'z')}")
            if sdt != 1.0:
                forward.append(f"dt = {scaled(sdt, 'dt')}")
        forward.append(f"u, b, c = {convolved('xbc')}.split(({x}, {b}, {c}), dim=-1)")
        low, high = self.dt_limit
        clamp = "" if (low, high) == (0.0, math.inf) else f".clamp({lit(low)}, {lit(high)})"
        forward.append(f"dt = F.softplus(dt.float() + self.dt_bias){clamp}")
        shape, group = f"({self.heads}, {self.head_dim})", f"({self.groups}, {self.state})"
        forward.append("a = -self.A_log.float().exp()")
        forward.append(f"u, b, c = u.unflatten(-1, {shape}), b.unflatten(-1, {group}), c.unflatten(-1, {group})")
        sizes = {"heads": self.heads, "head_dim": self.head_dim, "state": self.state, "groups": self.groups}
        scan = emit.part("ssd", **sizes)
        forward.append(f"y = {scan}(u, dt, a, b, c, self.D, ctx, state, chunk={self.chunk}).flatten(-2)")
        if self.norm is None:
            forward.append(f"return self.out_proj({emit.generated('gate', 'y', 'z') or 'y * F.silu(z)'})")
        else:
            members.append(f"self.norm = {self.norm.constructor((x,), emit, 'norm')}")
            forward.append(f"return self.out_proj({self.norm.applied('y', 'z', emit)})")
        members.append(f"self.out_proj = {emit.linear('out_proj', x, ins[0], bias=self.out_bias)}")
        shapes = f"conv=({channels}, {self.conv}), ssm=({self.heads}, {self.head_dim}, {self.state})"
        made = f"ops.MambaState(batch, {shapes}, device=device, dtype=dtype)"
        return ClassBody(tuple(members), tuple(forward), ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
