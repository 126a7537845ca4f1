"""gated_delta_net: linear attention whose state replaces values by key, and forgets (Yang et al., 2024)."""

from __future__ import annotations

import dataclasses
from typing import Self

from hybridc.ir.attrs import Choice, Flag, Float, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, quote
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import Check, Fill, Op, Param, Split, StateTensor, Widths, multiple, op
from hybridc.ir.ops.convolution import causal_conv1d, convolved
from hybridc.ir.ops.mlp import ACTIVATIONS
from hybridc.ir.ops.norms import GatedRMSNorm
from hybridc.ir.sharding import Sharded, cut, local


@op("gated_delta_net", "recurrence")
class GatedDeltaNet(Op):
    """S ← exp(g_t) S, S ← S + β_t k_t (v_t - k_tᵀ S)ᵀ, y_t = q_tᵀ S per head; q, k and v from a causal convolution.

    β = sigmoid(b), twice that with `neg_eigval`; g = -exp(A_log) softplus(a + dt_bias); keys and queries have length 1.
    Each head's result is normed and gated with z. Parameters: in_proj [2 key_heads key_dim + 2 heads value_dim +
    2 heads, in] (rows q, k, v, z, b, a), conv [2 key_heads key_dim + heads value_dim, conv], A_log and dt_bias [heads],
    norm [value_dim], out_proj [in, heads value_dim].
    """

    heads: int = attr(Int(), doc="heads of values")
    key_heads: int = attr(Int(), 0, doc="heads of queries and keys", derived="heads")
    key_dim: int = attr(Int(), 128, doc="width of a query and key head")
    value_dim: int = attr(Int(), 0, doc="width of a value head", derived="key_dim")
    conv: int = attr(Int(2), 4, doc="taps of the causal convolution")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "silu", doc="activation behind the convolution")
    neg_eigval: bool = attr(Flag(), False, doc="β from 0 to 2, so that the state can turn over")
    norm: GatedRMSNorm | None = attr(
        Record(("gated_rmsnorm",)), None, doc="norm of a head's result that takes the gate", optional=True
    )
    dt_min: float = attr(Float(0.0, strict=True), 0.001, doc="smallest dt at initialisation")
    dt_max: float = attr(Float(0.0, strict=True), 0.1, doc="largest dt at initialisation")
    dt_floor: float = attr(Float(0.0, strict=True), 1e-4, doc="dt at initialisation is at least this")

    def resolve(self, ins: Widths, check: Check) -> Self:
        key_heads = self.key_heads or self.heads
        if self.heads % key_heads:
            check.error(
                "HYB202",
                "key_heads" if self.key_heads else "heads",
                f"{self.heads} value heads do not divide over {key_heads} key heads",
                f"use {multiple(self.heads, key_heads)} value heads, or a divisor of {self.heads} for key_heads",
            )
        if self.dt_min >= self.dt_max:
            label = f"dt_max {self.dt_max} is not above dt_min {self.dt_min}"
            check.error("HYB112", "dt_max", label, "use dt_min < dt_max")
        if self.norm is not None:
            self.norm.check_groups(self.value_dim or self.key_dim, check, "norm")
        return dataclasses.replace(self, key_heads=key_heads, value_dim=self.value_dim or self.key_dim)

    def rows(self) -> tuple[int, ...]:
        """Rows of in_proj: q, k, v, z, b, a."""
        keys = (self.key_heads or self.heads) * self.key_dim
        values = self.heads * (self.value_dim or self.key_dim)
        return keys, keys, values, values, self.heads, self.heads

    def params(self, ins: Widths) -> tuple[Param, ...]:
        rows = self.rows()
        out = [
            Param("in_proj.weight", (sum(rows), ins[0]), Fill("linear", fan_in=ins[0])),
            Param("conv.weight", (sum(rows[:3]), self.conv), Fill("uniform", (self.conv**-0.5,))),
            Param("A_log", (self.heads,), Fill("a_log", (1.0, 16.0)), fp32=True),
            Param("dt_bias", (self.heads,), Fill("dt_bias", (self.dt_min, self.dt_max, self.dt_floor)), fp32=True),
        ]
        if self.norm is not None:
            inner = self.norm.params((rows[2] // self.heads,))
            out += [dataclasses.replace(p, name=f"norm.{p.name}") for p in inner]
        return (*out, Param("out_proj.weight", (ins[0], rows[2]), Fill("residual", fan_in=rows[2])))

    def flops(self, ins: Widths, seq: int) -> float:
        """Projections, the convolution, and per element of the state its decay, reading, update and output."""
        rows = self.rows()
        return super().flops(ins, seq) + 7.0 * rows[2] * self.key_dim

    def saved(self, ins: Widths, seq: int) -> float:
        q, k, v, z, b, a = self.rows()
        return ins[0] + 3 * (q + k + v) + z + 2 * (b + a) + 3 * v + v * self.key_dim / min(64, seq)

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        rows = self.rows()
        return (
            StateTensor("conv", sum(rows[:3]) * (self.conv - 1), fp32=True),
            StateTensor("ssm", rows[2] * self.key_dim, fp32=True),
        )

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (
            Split("tp", "heads", self.heads, "delta rule heads"),
            Split("tp", "key_heads", self.key_heads or self.heads, "delta rule key heads", replicable=True),
        )

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Heads are cut; key heads that are fewer than ranks are had by several."""
        rows, heads, keys = self.rows(), self.heads, self.key_heads or self.heads
        parts = tuple(zip(rows, (keys, keys, heads, heads, heads, heads), strict=True))
        cuts = {"in_proj.weight": cut(ranks, *parts), "conv.weight": cut(ranks, *parts[:3])}
        cuts |= dict.fromkeys(("A_log", "dt_bias"), cut(ranks, (heads, heads)))
        cuts |= {"out_proj.weight": cut(ranks, parts[2], dim=1)}
        return Sharded(dataclasses.replace(self, heads=heads // ranks, key_heads=local(keys, ranks)), cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        inner = self.rows()[2]
        if self.norm is None:
            return (inside("silu_gate", inner, "gate", "out_proj"),)
        kernels: tuple[Kernel, ...] = self.norm.by_head(inner // self.heads, self.heads, "norm", "out_proj")
        return kernels

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        q, k, v, z, b, a = rows = self.rows()
        width = v // self.heads
        shown = ", ".join(f"{r} {n}" for r, n in zip(rows, ("q", "k", "v", "z", "b", "a"), strict=True))
        members = [
            f"self.in_proj = {emit.linear('in_proj', ins[0], sum(rows), parts=rows)}  # {shown} rows",
            f"self.conv = {causal_conv1d(emit, q + k + v, self.conv, bias=False)}",
            *(f"self.{name} = nn.Parameter(torch.empty({self.heads}))" for name in ("A_log", "dt_bias")),
        ]
        keys = f"({self.key_heads or self.heads}, {self.key_dim})"
        beta = "2.0 * b.float().sigmoid()" if self.neg_eigval else "b.float().sigmoid()"
        rule = emit.part("gated_delta_rule", key_dim=self.key_dim, value_dim=width, per_channel=False)
        forward = [
            f"qkv, z, b, a = self.in_proj(x).split(({q + k + v}, {z}, {b}, {a}), dim=-1)",
            f"q, k, v = {convolved('qkv', self.act)}.split(({q}, {k}, {v}), dim=-1)",
            f"q, k, v = q.unflatten(-1, {keys}), k.unflatten(-1, {keys}), v.unflatten(-1, ({self.heads}, {width}))",
            "g = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias)",
            f"y = {rule}(q, k, v, g, {beta}, ctx, state)",
        ]
        if self.norm is None:
            gated = emit.generated("gate", "y.flatten(-2)", "z") or "y.flatten(-2) * F.silu(z)"
            forward.append(f"return self.out_proj({gated})")
        else:
            members.append(f"self.norm = {self.norm.constructor((width,), emit, 'norm')}")
            forward.append(f"return self.out_proj({self.norm.by_heads('y', 'z', emit)})")
        members.append(f"self.out_proj = {emit.linear('out_proj', v, ins[0])}")
        shapes = f"conv=({q + k + v}, {self.conv}), ssm=({self.heads}, {self.key_dim}, {width})"
        made = f"ops.MambaState(batch, {shapes}, device=device, dtype=dtype)"
        return ClassBody(tuple(members), tuple(forward), ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
