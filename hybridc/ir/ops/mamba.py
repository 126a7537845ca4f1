"""mamba: the selective state space mixer of Mamba (Gu and Dao, 2023)."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Self

from hybridc.ir.attrs import Flag, Float, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, call, quote
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import ONES, ZEROS, Check, Fill, Op, Param, Split, StateTensor, Widths, op
from hybridc.ir.ops.convolution import causal_conv1d, convolved
from hybridc.ir.ops.norms import RMSNorm
from hybridc.ir.sharding import FIRST, Sharded, cut


@op("mamba", "recurrence")
class Mamba(Op):
    """h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t; y_t = C_t h_t + D x_t, per channel, gated with silu(z).

    Parameters: in_proj [2 inner, in] (rows x, z), conv [inner, conv], x_proj [dt_rank + 2 state, inner] (rows dt, B,
    C), dt_proj [inner, dt_rank] with a bias, A_log [inner, state], D [inner], out_proj [in, inner]; `norm`: dt_norm
    [dt_rank], B_norm and C_norm [state], which keep large models stable (Jamba: Lieber et al., 2024).
    """

    summing: ClassVar[str] = "nn.Linear"
    """What makes dt, B and C of the channels."""

    state: int = attr(Int(), 16, doc="state size of a channel")
    inner: int = attr(Int(), 0, doc="channels inside", derived="2 dim")
    conv: int = attr(Int(2), 4, doc="taps of the causal convolution")
    dt_rank: int = attr(Int(), 0, doc="rank of the step size's projection", derived="ceil(dim / 16)")
    conv_bias: bool = attr(Flag(), True, doc="bias on the convolution")
    proj_bias: bool = attr(Flag(), False, doc="biases on in_proj and out_proj")
    norm: RMSNorm | None = attr(
        Record(("rmsnorm",)), None, doc="norms of dt (before its projection), B and C, each over itself", optional=True
    )
    dt_min: float = attr(Float(0.0, strict=True), 0.001, doc="smallest dt at initialisation")
    dt_max: float = attr(Float(0.0, strict=True), 0.1, doc="largest dt at initialisation")
    dt_floor: float = attr(Float(0.0, strict=True), 1e-4, doc="dt at initialisation is at least this")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.dt_min >= self.dt_max:
            check.error(
                "HYB112", "dt_max", f"dt_max {self.dt_max} is not above dt_min {self.dt_min}", "use dt_min < dt_max"
            )
        rank = self.dt_rank or math.ceil(ins[0] / 16)
        return dataclasses.replace(self, inner=self.inner or 2 * ins[0], dt_rank=rank)

    def params(self, ins: Widths) -> tuple[Param, ...]:
        rank, inner = self.dt_rank, self.inner
        out = [Param("in_proj.weight", (2 * inner, ins[0]), Fill("linear", fan_in=ins[0]))]
        if self.proj_bias:
            out.append(Param("in_proj.bias", (2 * inner,), ZEROS))
        out.append(Param("conv.weight", (inner, self.conv), Fill("uniform", (self.conv**-0.5,))))
        if self.conv_bias:
            out.append(Param("conv.bias", (inner,), ZEROS))
        out += [
            Param("x_proj.weight", (rank + 2 * self.state, inner), Fill("linear", fan_in=inner)),
            *(
                dataclasses.replace(p, name=f"{name}.{p.name}")
                for name, norm, width in self.norms()
                for p in norm.params((width,))
            ),
            Param("dt_proj.weight", (inner, rank), Fill("uniform", (rank**-0.5,))),
            Param("dt_proj.bias", (inner,), Fill("dt_bias", (self.dt_min, self.dt_max, self.dt_floor)), fp32=True),
            Param("A_log", (inner, self.state), Fill("a_log_range"), fp32=True),
            Param("D", (inner,), ONES, fp32=True),
            Param("out_proj.weight", (ins[0], inner), Fill("residual", fan_in=inner)),
        ]
        if self.proj_bias:
            out.append(Param("out_proj.bias", (ins[0],), ZEROS))
        return tuple(out)

    def norms(self) -> tuple[tuple[str, RMSNorm, int], ...]:
        """Name, op and width of the norms of dt, B and C, if there are any."""
        if self.norm is None:
            return ()
        widths = (("dt_norm", self.dt_rank), ("B_norm", self.state), ("C_norm", self.state))
        return tuple((name, self.norm, width) for name, width in widths)

    def flops(self, ins: Widths, seq: int) -> float:
        """Projections, convolution, and per state element: decay, input, update and output."""
        return super().flops(ins, seq) - 2.0 * self.inner * self.state + 9.0 * self.inner * self.state

    def saved(self, ins: Widths, seq: int) -> float:
        return ins[0] + 6 * self.inner + self.dt_rank + 2 * self.state + self.inner * self.state

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        return (
            StateTensor("conv", self.inner * (self.conv - 1), fp32=True),
            StateTensor("ssm", self.inner * self.state, fp32=True),
        )

    def projections(self, ins: Widths) -> tuple[str, ...]:
        """Without those that make dt, B and C: recipes leave alone what sets the decays."""
        return ("in_proj", "out_proj")

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "inner", self.inner, "mamba channels"),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Channels are cut; dt, B and C, which are made of all channels, are summed inside and whole."""
        channels = (self.inner, self.inner)
        both, each, columns = cut(ranks, channels, channels), cut(ranks, channels), cut(ranks, channels, dim=1)
        cuts = {"in_proj.weight": both, "in_proj.bias": both, "x_proj.weight": columns}
        cuts |= dict.fromkeys(("conv.weight", "conv.bias", "dt_proj.weight", "dt_proj.bias", "A_log", "D"), each)
        cuts |= {"out_proj.weight": columns, "out_proj.bias": FIRST}
        attributes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Sharded(MambaChannels(**{**attributes, "inner": self.inner // ranks}), cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        return (inside("silu_gate", self.inner, "gate", "out_proj"),)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        inner, n, rank = self.inner, self.state, self.dt_rank
        both = emit.linear("in_proj", ins[0], 2 * inner, bias=self.proj_bias, parts=(inner, inner))
        scan = emit.part("selective_scan", channels=inner, state=n)
        members = (
            f"self.in_proj = {both}  # {inner} x, {inner} z rows",
            f"self.conv = {causal_conv1d(emit, inner, self.conv, bias=self.conv_bias)}",
            f"self.x_proj = {call(self.summing, inner, rank + 2 * n, bias=False)}  # {rank} dt, {n} B, {n} C rows",
            *(f"self.{name} = {norm.constructor((width,), emit)}" for name, norm, width in self.norms()),
            f"self.dt_proj = {call('nn.Linear', rank, inner)}",
            f"self.A_log = nn.Parameter(torch.empty({inner}, {n}))",
            f"self.D = nn.Parameter(torch.empty({inner}))",
            f"self.out_proj = {emit.linear('out_proj', inner, ins[0], bias=self.proj_bias)}",
        )
        forward = (
            "u, z = self.in_proj(x).chunk(2, dim=-1)",
            f"u = {convolved('u')}",
            f"dt, b, c = self.x_proj(u).split(({rank}, {n}, {n}), dim=-1)",
            *(("dt, b, c = self.dt_norm(dt), self.B_norm(b), self.C_norm(c)",) if self.norm is not None else ()),
            "dt = F.softplus(F.linear(dt, self.dt_proj.weight).float() + self.dt_proj.bias)",
            f"y = {scan}(u, dt, -self.A_log.float().exp(), b, c, self.D, ctx, state)",
            f"return self.out_proj({emit.generated('gate', 'y', 'z') or 'y * F.silu(z)'})",
        )
        shapes = f"conv=({inner}, {self.conv}), ssm=({inner}, {n})"
        made = f"ops.MambaState(batch, {shapes}, device=device, dtype=dtype)"
        return ClassBody(members, forward, ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)


@op("mamba_channels", "recurrence")
class MambaChannels(Mamba):
    """One rank's channels of a `mamba`."""

    inserted: ClassVar[bool] = True
    summing: ClassVar[str] = "ops.SummedLinear"
