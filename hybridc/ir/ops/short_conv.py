"""short_conv: the gated short convolution of LFM2 (Liquid AI, 2025)."""

from __future__ import annotations

from typing import ClassVar

from hybridc.ir.attrs import Flag, Int, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, quote
from hybridc.ir.ops.base import ZEROS, Fill, Op, Param, Split, StateTensor, Widths, op
from hybridc.ir.ops.convolution import causal_conv1d
from hybridc.ir.sharding import FIRST, Sharded, cut


@op("short_conv", "recurrence")
class ShortConv(Op):
    """y = out(C · conv(B · x)), where B, C and x are projections of the input and conv is causal, one filter a channel.

    Parameters: in_proj [3 in, in] (rows B, C, x), conv [in, conv], out_proj [in, in].
    """

    conv: int = attr(Int(2), 3, doc="taps of the causal convolution")
    bias: bool = attr(Flag(), False, doc="biases on the projections and the convolution")

    def inner(self, ins: Widths) -> int:
        """Channels of the convolution."""
        return ins[0]

    def params(self, ins: Widths) -> tuple[Param, ...]:
        dim, inner = ins[0], self.inner(ins)
        out = [
            Param("in_proj.weight", (3 * inner, dim), Fill("linear", fan_in=dim)),
            Param("conv.weight", (inner, self.conv), Fill("uniform", (self.conv**-0.5,))),
            Param("out_proj.weight", (dim, inner), Fill("residual", fan_in=inner)),
        ]
        if self.bias:
            rows = (("in_proj", 3 * inner), ("conv", inner), ("out_proj", dim))
            out += [Param(f"{name}.bias", (n,), ZEROS) for name, n in rows]
        return tuple(out)

    def flops(self, ins: Widths, seq: int) -> float:
        return super().flops(ins, seq) + 2.0 * ins[0]

    def saved(self, ins: Widths, seq: int) -> float:
        return 6.0 * ins[0]

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        return (StateTensor("conv", ins[0] * (self.conv - 1), fp32=True),)

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "conv", ins[0], "channels of the short convolution"),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Channels are cut."""
        channels = (ins[0], ins[0])
        cuts = dict.fromkeys(("in_proj.weight", "in_proj.bias"), cut(ranks, *(channels,) * 3))
        cuts |= dict.fromkeys(("conv.weight", "conv.bias"), cut(ranks, channels))
        cuts |= {"out_proj.weight": cut(ranks, channels, dim=1), "out_proj.bias": FIRST}
        return Sharded(ConvChannels(self.conv, self.bias, ins[0] // ranks), cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        dim, inner = ins[0], self.inner(ins)
        members = (
            f"self.in_proj = {emit.linear('in_proj', dim, 3 * inner, bias=self.bias, parts=(inner,) * 3)}"
            f"  # {inner} B, {inner} C, {inner} x rows",
            f"self.conv = {causal_conv1d(emit, inner, self.conv, bias=self.bias)}",
            f"self.out_proj = {emit.linear('out_proj', inner, dim, bias=self.bias)}",
        )
        forward = (
            "b, c, x = self.in_proj(x).chunk(3, dim=-1)",
            "return self.out_proj(c * self.conv(b * x, ctx, state))",
        )
        made = f"ops.ConvState(batch, conv=({inner}, {self.conv}), device=device, dtype=dtype)"
        return ClassBody(members, forward, ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)


@op("conv_channels", "recurrence")
class ConvChannels(ShortConv):
    """One rank's channels of a `short_conv`."""

    inserted: ClassVar[bool] = True

    channels: int = attr(Int(), 0, doc="channels of one rank", derived="dim")

    def inner(self, ins: Widths) -> int:
        return self.channels
