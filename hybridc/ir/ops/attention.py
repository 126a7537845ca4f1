"""attention: multi-head, grouped-query and multi-query, with rotary positions, windows, biases and qk-norm."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from hybridc.ir.attrs import Flag, Float, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, call, lit, quote, scaled
from hybridc.ir.ops.base import ZEROS, Check, Fill, Op, Param, Split, StateTensor, Widths, multiple, op
from hybridc.ir.ops.rope import Rope


@op("attention")
class Attention(Op):
    """Causal softmax attention (Vaswani et al., 2017; grouped queries: Ainslie et al., 2023).

    `heads` query heads of `head_dim` read `kv_heads` key and value heads; token i sees the last `window` tokens up to
    itself, or all. Parameters: qkv [(heads + 2 kv_heads) head_dim, in], out [in, heads head_dim].
    """

    heads: int = attr(Int(), doc="query heads")
    kv_heads: int = attr(Int(), 0, doc="key and value heads", derived="heads")
    head_dim: int = attr(Int(), 0, doc="width of a head", derived="dim / heads")
    rope: Rope | None = attr(Record(("rope",)), None, doc="rotary positions", optional=True)
    window: int | None = attr(Int(), None, doc="tokens that a token sees, itself included", optional=True)
    scale: float = attr(Float(0.0, strict=True), 0.0, doc="softmax scale", derived="head_dim ** -0.5")
    bias: bool = attr(Flag(), False, doc="biases on q, k and v")
    out_bias: bool = attr(Flag(), False, doc="bias on the output projection")
    qk_norm: Any = attr(
        Record(("rmsnorm", "layernorm")), None, doc="norm of each query and key head, before rope", optional=True
    )
    key_scale: float = attr(Float(), 1.0, doc="multiplies the keys")

    def resolve(self, ins: Widths, check: Check) -> Self:
        dim, head_dim = ins[0], self.head_dim
        kv_heads = self.kv_heads or self.heads
        if not head_dim:
            if dim % self.heads:
                check.error(
                    "HYB201",
                    "heads",
                    f"width {dim} does not divide into {self.heads} heads",
                    f"use a divisor of {dim} for heads, or give head_dim",
                )
            head_dim = max(1, dim // self.heads)
        if self.heads % kv_heads:
            check.error(
                "HYB202",
                "kv_heads" if self.kv_heads else "heads",
                f"{self.heads} query heads do not divide over {kv_heads} key-value heads",
                f"use {multiple(self.heads, kv_heads)} query heads, or a divisor of {self.heads} for kv_heads",
            )
        if self.rope is not None:
            rotated = self.rope.rotated(head_dim)
            if rotated % 2 or not 2 <= rotated <= head_dim:
                check.error(
                    "HYB203",
                    "rope",
                    f"rope would turn {rotated} of {head_dim} channels of a head; it needs an even number of them",
                    "change head_dim or rope's partial so that an even number of channels, at most head_dim, rotates",
                )
        return dataclasses.replace(self, kv_heads=kv_heads, head_dim=head_dim, scale=self.scale or head_dim**-0.5)

    def params(self, ins: Widths) -> tuple[Param, ...]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        out = [Param("qkv.weight", (q + 2 * kv, ins[0]), Fill("linear", fan_in=ins[0]))]
        if self.bias:
            out.append(Param("qkv.bias", (q + 2 * kv,), ZEROS))
        if self.qk_norm is not None:
            for name in ("q_norm", "k_norm"):
                inner = self.qk_norm.params((self.head_dim,))
                out += [dataclasses.replace(p, name=f"{name}.{p.name}") for p in inner]
        out.append(Param("out.weight", (ins[0], q), Fill("residual", fan_in=q)))
        if self.out_bias:
            out.append(Param("out.bias", (ins[0],), ZEROS))
        return tuple(out)

    def seen(self, seq: int) -> float:
        """Mean number of tokens that a token of a row of `seq` sees."""
        if self.window is None or self.window >= seq:
            return (seq + 1) / 2
        w = self.window
        return (w * (w + 1) / 2 + (seq - w) * w) / seq

    def flops(self, ins: Widths, seq: int) -> float:
        return super().flops(ins, seq) + 4.0 * self.heads * self.head_dim * self.seen(seq)

    def saved(self, ins: Widths, seq: int) -> float:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return ins[0] + 2 * q + 2 * kv + self.heads

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        return (StateTensor("kv", 2 * self.kv_heads * self.head_dim * length),)

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (
            Split("tp", "heads", self.heads, "attention heads", code="HYB214"),
            Split("tp", "kv_heads", self.kv_heads, "key-value heads", replicable=True),
        )

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        members = [
            f"self.qkv = {call('nn.Linear', ins[0], q + 2 * kv, bias=self.bias)}"
            f"  # {q} query, {kv} key, {kv} value rows",
            f"self.out = {call('nn.Linear', q, ins[0], bias=self.out_bias)}",
        ]
        query, key = (
            f"{n}.unflatten(-1, ({h}, {self.head_dim}))" for n, h in (("q", self.heads), ("k", self.kv_heads))
        )
        forward = [f"q, k, v = self.qkv(x).split(({q}, {kv}, {kv}), dim=-1)"]
        if self.qk_norm is not None:
            norm = self.qk_norm.leaf((self.head_dim,))
            members[1:1] = [f"self.q_norm = {norm}", f"self.k_norm = {norm}"]
            query, key = f"self.q_norm({query})", f"self.k_norm({key})"
        key = scaled(self.key_scale, key)
        if self.rope is not None:
            table = emit.constant("ROPE", self.rope.construct(self.head_dim))
            forward.append(f"q, k = ops.rope({query}, {key}, ctx.rope({table}))")
        else:
            forward.append(f"q, k = {query}, {key}")
        window = "" if self.window is None else f", window={self.window}"
        value = f"v.unflatten(-1, ({self.kv_heads}, {self.head_dim}))"
        forward.append(f"y = ops.attention(q, k, {value}, ctx, state, scale={lit(self.scale)}{window})")
        forward.append("return self.out(y.flatten(-2))")
        state = (
            f"ops.KVState(batch, max_len, heads={self.kv_heads}, head_dim={self.head_dim}, device=device, dtype=dtype)"
        )
        return ClassBody(tuple(members), tuple(forward), ("x", "ctx", "state=None"), state)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
