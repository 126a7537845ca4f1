"""short_conv: the gated short convolution of LFM2 (Liquid AI, 2025)."""

from __future__ import annotations

from hybridc.ir.attrs import Flag, Int, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, quote
from hybridc.ir.ops.base import ZEROS, Fill, Op, Param, Split, StateTensor, Widths, op
from hybridc.ir.ops.convolution import causal_conv1d


@op("short_conv", "recurrence")
class ShortConv(Op):
    """y = out(C · conv(B · x)), where B, C and x are projections of the input and conv is causal, one filter a channel.

    Parameters: in_proj [3 in, in] (rows B, C, x), conv [in, conv], out_proj [in, in].
    """

    conv: int = attr(Int(2), 3, doc="taps of the causal convolution")
    bias: bool = attr(Flag(), False, doc="biases on the projections and the convolution")

    def params(self, ins: Widths) -> tuple[Param, ...]:
        dim = ins[0]
        out = [
            Param("in_proj.weight", (3 * dim, dim), Fill("linear", fan_in=dim)),
            Param("conv.weight", (dim, self.conv), Fill("uniform", (self.conv**-0.5,))),
            Param("out_proj.weight", (dim, dim), Fill("residual", fan_in=dim)),
        ]
        if self.bias:
            rows = (("in_proj", 3 * dim), ("conv", dim), ("out_proj", dim))
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

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("in_proj",)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        dim = ins[0]
        members = (
            f"self.in_proj = {emit.linear('in_proj', dim, 3 * dim, bias=self.bias, parts=(dim,) * 3)}"
            f"  # {dim} B, {dim} C, {dim} x rows",
            f"self.conv = {causal_conv1d(emit, dim, self.conv, bias=self.bias)}",
            f"self.out_proj = {emit.linear('out_proj', dim, dim, bias=self.bias)}",
        )
        forward = (
            "b, c, x = self.in_proj(x).chunk(3, dim=-1)",
            "return self.out_proj(c * self.conv(b * x, ctx, state))",
        )
        made = f"ops.ConvState(batch, conv=({dim}, {self.conv}), device=device, dtype=dtype)"
        return ClassBody(members, forward, ("x", "ctx", "state=None"), made)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
