"""attention: multi-head, grouped-query and multi-query, with rotary positions, windows, sinks, gates and norms."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from hybridc.ir.attrs import Choice, Flag, Float, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, broken, lit, quote, scaled
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import ZEROS, Check, Fill, Op, Param, Split, StateTensor, Widths, multiple, op
from hybridc.ir.ops.lora import Lora
from hybridc.ir.ops.norms import applied, over
from hybridc.ir.ops.rope import Heads, Rope
from hybridc.ir.sharding import FIRST, Sharded, cut, local

NORMS = ("rmsnorm", "layernorm")


def _below(name: str, params: tuple[Param, ...]) -> list[Param]:
    return [dataclasses.replace(p, name=f"{name}.{p.name}") for p in params]


@op("attention", "attention")
class Attention(Op):
    """Causal softmax attention (Vaswani et al., 2017; grouped queries: Ainslie et al., 2023).

    `heads` query heads of `head_dim` read `kv_heads` key and value heads; token i sees the last `window` tokens up to
    itself, or all. Parameters: qkv [(heads + 2 kv_heads) head_dim, in] (rows q, k, v; `gated`: q, gate, k, v),
    out [out_dim, heads head_dim].
    """

    heads: int = attr(Int(), doc="query heads")
    kv_heads: int = attr(Int(), 0, doc="key and value heads", derived="heads")
    head_dim: int = attr(Int(), 0, doc="width of a head", derived="dim / heads")
    rope: Rope | None = attr(Record(("rope",)), None, doc="rotary positions", optional=True)
    window: int | None = attr(Int(), None, doc="tokens that a token sees, itself included", optional=True)
    scale: float = attr(Float(0.0, strict=True), 0.0, doc="softmax scale", derived="head_dim ** -0.5")
    bias: bool = attr(Flag(), False, doc="biases on q, k, v and the gate")
    out_bias: bool = attr(Flag(), False, doc="bias on the output projection")
    qk_norm: Any = attr(Record(NORMS), None, doc="norm of the queries and the keys, before rope", optional=True)
    qk_norm_over: str = attr(Choice(("head", "all")), "head", doc="what qk_norm takes together: a head, or all heads")
    key_scale: float = attr(Float(), 1.0, doc="multiplies the keys")
    gated: bool = attr(Flag(), False, doc="multiply the heads' results with sigmoid(gate), a projection of its own")
    sinks: bool = attr(Flag(), False, doc="a learned logit for each head that the softmax counts and no value has")
    softcap: float | None = attr(Float(0.0, strict=True), None, doc="scores become c tanh(score / c)", optional=True)
    clip: float | None = attr(
        Float(0.0, strict=True), None, doc="queries, keys and values are held within +- this", optional=True
    )
    dropout: float = attr(Float(0.0), 0.0, doc="share of the softmax's weights that training drops")
    out_norm: Any = attr(Record(NORMS), None, doc="norm in front of the output projection", optional=True)
    out_dim: int = attr(Int(), 0, doc="width of the result", derived="dim")
    adapter: Lora | None = attr(Record(("lora",)), None, doc="adapters on q, k, v and the gate", optional=True)

    def resolve(self, ins: Widths, check: Check) -> Self:
        dim, head_dim = ins[0], self.head_dim
        if self.dropout >= 1.0:
            check.error("HYB112", "dropout", f"expected less than 1, got {self.dropout}", "use a share below 1")
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
            self.rope.check_factors(head_dim, check)
            rotated = self.rope.rotated(head_dim)
            if rotated % 2 or not 2 <= rotated <= head_dim:
                check.error(
                    "HYB203",
                    "rope",
                    f"rope would turn {rotated} of {head_dim} channels of a head; it needs an even number of them",
                    "change head_dim or rope's partial so that an even number of channels, at most head_dim, rotates",
                )
        if self.adapter is not None and self.sinks:
            label = "sinks belong to all layers, adapters to each"
            check.error("HYB221", "adapter", label, "leave out one of them")
        return dataclasses.replace(
            self,
            kv_heads=kv_heads,
            head_dim=head_dim,
            scale=self.scale or head_dim**-0.5,
            out_dim=self.out_dim or dim,
        )

    def width(self, ins: Widths) -> int:
        return self.out_dim or ins[0]

    def rows(self) -> tuple[int, ...]:
        """Rows of the fused projection: q, (gate,) k, v."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (q, q, kv, kv) if self.gated else (q, kv, kv)

    def norm_widths(self) -> tuple[int, int]:
        """Channels that the norms of queries and keys take together."""
        if self.qk_norm_over == "head":
            return self.head_dim, self.head_dim
        return self.heads * self.head_dim, self.kv_heads * self.head_dim

    def params(self, ins: Widths) -> tuple[Param, ...]:
        q, rows, dim = self.heads * self.head_dim, sum(self.rows()), self.width(ins)
        out = [Param("qkv.weight", (rows, ins[0]), Fill("linear", fan_in=ins[0]))]
        if self.bias:
            out.append(Param("qkv.bias", (rows,), ZEROS))
        if self.adapter is not None:
            out += self.adapter.adapter(ins[0], self.rows())
        if self.qk_norm is not None:
            for name, width in zip(("q_norm", "k_norm"), self.norm_widths(), strict=True):
                out += _below(name, self.qk_norm.params((width,)))
        if self.sinks:
            out.append(Param("sinks", (self.heads,), Fill("normal", (0.02,))))
        if self.out_norm is not None:
            out += _below("out_norm", self.out_norm.params((q,)))
        out.append(Param("out.weight", (dim, q), Fill("residual", fan_in=q)))
        if self.out_bias:
            out.append(Param("out.bias", (dim,), ZEROS))
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
        return ins[0] + sum(self.rows()) + self.heads * self.head_dim + self.heads

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        return (StateTensor("kv", 2 * self.kv_heads * self.head_dim * length),)

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (
            Split("tp", "heads", self.heads, "attention heads", code="HYB214"),
            Split("tp", "kv_heads", self.kv_heads, "key-value heads", replicable=True),
        )

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Heads are cut; key and value heads that are fewer than ranks are had by several."""
        rows, units = self.rows(), (*(self.heads,) * (len(self.rows()) - 2), self.kv_heads, self.kv_heads)
        query, key = (rows[0], self.heads), (rows[-1], self.kv_heads)
        parts = tuple(zip(rows, units, strict=True))
        cuts = {
            "qkv.weight": cut(ranks, *parts),
            "qkv.bias": cut(ranks, *parts),
            "sinks": cut(ranks, (self.heads,) * 2),
        }
        cuts |= {f"adapter.up.{n}.weight": cut(ranks, part) for n, part in enumerate(parts)}
        norms = {"out_norm": (self.out_norm, query)}
        qk_norm = self.qk_norm
        if self.qk_norm_over == "all":
            norms |= {"q_norm": (qk_norm, query), "k_norm": (qk_norm, key)}
            qk_norm = over(qk_norm, ranks)
        for name, (norm, part) in norms.items():
            cuts |= {f"{name}.{p.name}": cut(ranks, part) for p in (norm.params(part) if norm is not None else ())}
        cuts |= {"out.weight": cut(ranks, query, dim=1), "out.bias": FIRST}
        made = dataclasses.replace(
            self,
            heads=self.heads // ranks,
            kv_heads=local(self.kv_heads, ranks),
            qk_norm=qk_norm,
            out_norm=over(self.out_norm, ranks),
        )
        return Sharded(made, cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("qkv",) if self.adapter is None else ()

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        out: list[Kernel] = []
        heads = {"q": self.heads, "k": self.kv_heads}
        if self.qk_norm is not None:
            for (name, count), width in zip(heads.items(), self.norm_widths(), strict=True):
                by_head = self.qk_norm_over == "head"
                out += [
                    dataclasses.replace(k, name=f"head_{k.name}", segments=count, part=f"{name}_norm")
                    if by_head
                    else k.at(f"{name}_norm")
                    for k in self.qk_norm.kernels((width,))
                ]
        if self.rope is not None:
            out += self.rope.turns(self.head_dim, heads)
        inner = self.heads * self.head_dim
        if self.gated:
            out.append(inside("sigmoid_gate", inner, "gate", "out" if self.out_norm is None else ""))
        if self.out_norm is not None:
            out += [k.at("out_norm", "out") for k in self.out_norm.kernels((inner,))]
        return tuple(out)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        q, rows = self.heads * self.head_dim, self.rows()
        names = ("query", "gate", "key", "value") if self.gated else ("query", "key", "value")
        shown = ", ".join(f"{r} {n}" for r, n in zip(rows, names, strict=True))
        members = [f"self.qkv = {emit.linear('qkv', ins[0], sum(rows), bias=self.bias, parts=rows)}  # {shown} rows"]
        parts = "q, gate, k, v" if self.gated else "q, k, v"
        fused = "self.qkv(x)"
        if self.adapter is not None:
            members.append(f"self.adapter = {self.adapter.construct(ins[0], rows)}")
            fused = "(self.qkv(x) + self.adapter(x))"
        forward = [f"{parts} = {fused}.split(({', '.join(map(str, rows))}), dim=-1)"]
        query, key = "q", "k"
        if self.qk_norm is not None:
            members += self._norm_members(emit)
            if self.qk_norm_over == "all":
                query, key = (applied(self.qk_norm, f"{n}_norm", n, emit) for n in "qk")
        if self.clip is not None:
            low, high = lit(-self.clip), lit(self.clip)
            clipped = ", ".join(f"{n}.clamp({low}, {high})" for n in (query, key, "v"))
            forward.append(f"q, k, v = {clipped}")
            query, key = "q", "k"
        forward += self._shaped(query, key, emit)
        if self.sinks:
            members.append(f"self.sinks = nn.Parameter(torch.empty({self.heads}))")
        options = "".join(f", {name}={text}" for name, text in self._options())
        forward.append(f"v = v.unflatten(-1, ({self.kv_heads}, {self.head_dim}))")
        attend = emit.part("attention", **self._facts())
        forward += broken(f"y = {attend}(q, k, v, ctx, state, scale={lit(self.scale)}{options})")
        y = "y.flatten(-2)"
        if self.gated:
            y = emit.generated("gate", y, "gate") or f"{y} * gate.sigmoid()"
        if self.out_norm is not None:
            members.append(f"self.out_norm = {self.out_norm.constructor((q,), emit, 'out_norm')}")
            y = applied(self.out_norm, "out_norm", y, emit)
        forward.append(f"return self.out({y})")
        members.append(f"self.out = {emit.linear('out', q, self.width(ins), bias=self.out_bias)}")
        state = (
            f"ops.KVState(batch, max_len, heads={self.kv_heads}, head_dim={self.head_dim}, device=device, dtype=dtype)"
        )
        return ClassBody(tuple(members), tuple(forward), ("x", "ctx", "state=None"), state)

    def _norm_members(self, emit: Emit) -> list[str]:
        """The norms of queries and keys."""
        pairs = zip(("q_norm", "k_norm"), self.norm_widths(), strict=True)
        return [f"self.{name} = {self.qk_norm.constructor((width,), emit, name)}" for name, width in pairs]

    def _shaped(self, query: str, key: str, emit: Emit) -> list[str]:
        """Lines that make q and k [..., heads, head_dim] of texts that have heads side by side: normed by head, scaled
        and turned by their positions."""
        values: dict[str, Heads] = {}
        for name, text, heads, factor in (("q", query, self.heads, 1.0), ("k", key, self.kv_heads, self.key_scale)):
            shaped, flat = f"{text}.unflatten(-1, ({heads}, {self.head_dim}))", text
            if self.qk_norm is not None and self.qk_norm_over == "head":
                normed = applied(self.qk_norm, f"{name}_norm", text, emit)
                if f"{name}_norm" in emit.inner:
                    shaped, flat = f"{normed}.unflatten(-1, ({heads}, {self.head_dim}))", normed
                else:
                    shaped = applied(self.qk_norm, f"{name}_norm", shaped, emit)
                    flat = f"{shaped}.flatten(-2)"
            values[name] = Heads(scaled(factor, shaped), scaled(factor, flat), heads)
        if self.rope is not None:
            return self.rope.turned(self.head_dim, values, emit)
        return [f"q, k = {values['q'].shaped}, {values['k'].shaped}"]

    def _facts(self) -> dict[str, object]:
        """What a backend asks of a use of attention."""
        names = ("heads", "kv_heads", "head_dim", "window", "softcap", "sinks", "dropout", "clip")
        return {**{name: getattr(self, name) for name in names}, "value_dim": self.head_dim}

    def _options(self) -> list[tuple[str, str]]:
        """Arguments of the runtime's attention that differ from its defaults."""
        out = []
        if self.window is not None:
            out.append(("window", str(self.window)))
        if self.softcap is not None:
            out.append(("softcap", lit(self.softcap)))
        if self.sinks:
            out.append(("sinks", "self.sinks"))
        if self.dropout:
            out.append(("dropout", f"{lit(self.dropout)} if self.training else 0.0"))
        return out

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
