"""mla: multi-head latent attention, whose keys and values come from one latent a token."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from hybridc.ir.attrs import Flag, Float, Int, Record, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, lit, quote
from hybridc.ir.kernels import Kernel
from hybridc.ir.ops.attention import NORMS
from hybridc.ir.ops.base import ZEROS, Check, Fill, Op, Param, Split, StateTensor, Widths, op
from hybridc.ir.ops.norms import applied
from hybridc.ir.ops.rope import Heads, Rope
from hybridc.ir.sharding import FIRST, Sharded, cut


@op("mla", "attention")
class MLA(Op):
    """Causal attention with keys [up_k c, k_rope] and values up_v c of a latent c = norm(down x) (DeepSeek-V2, 2024).

    Queries come from a latent of their own when `q_rank` is not 0. `rope` turns the last `rope_dim` channels of queries
    and keys; those of the keys are shared by all heads. Parameters: q [heads (nope_dim + rope_dim), in], or q_down
    [q_rank, in], q_norm and q_up; kv_down [kv_rank + rope_dim, in], kv_norm [kv_rank], kv_up [heads (nope_dim +
    value_dim), kv_rank] (for each head its key rows, then its value rows), out [in, heads value_dim].
    """

    heads: int = attr(Int(), doc="heads")
    kv_rank: int = attr(Int(), doc="width of the latent of keys and values")
    nope_dim: int = attr(Int(), doc="channels of a head's queries and keys that do not rotate")
    rope_dim: int = attr(Int(), doc="channels that rotate, the keys' shared by all heads")
    value_dim: int = attr(Int(), 0, doc="channels of a head's values", derived="nope_dim")
    q_rank: int = attr(Int(0), 0, doc="width of the latent of queries; 0: none")
    rope: Rope | None = attr(Record(("rope",)), None, doc="rotary positions", optional=True)
    norm: Any = attr(Record(NORMS), None, doc="norm of the latents; none: no norm", optional=True)
    scale: float = attr(
        Float(0.0, strict=True), 0.0, doc="softmax scale", derived="(nope_dim + rope_dim) ** -0.5"
    )  # fmt: skip
    bias: bool = attr(Flag(), False, doc="biases on the projections of x and on the output's")
    gated: bool = attr(Flag(), False, doc="multiply each head's result with sigmoid of a projection to one number")
    dropout: float = attr(Float(0.0), 0.0, doc="share of the softmax's weights that training drops")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.rope is not None:
            self.rope.check_factors(self.rope_dim, check)
            rotated = self.rope.rotated(self.rope_dim)
            if rotated % 2 or not 2 <= rotated <= self.rope_dim:
                label = (
                    f"rope would turn {rotated} of rope_dim {self.rope_dim} channels; it needs an even number of them"
                )
                help = "change rope_dim or rope's partial so that an even number of channels, at most rope_dim, rotates"
                check.error("HYB203", "rope", label, help)
        if self.dropout >= 1.0:
            check.error("HYB112", "dropout", f"expected less than 1, got {self.dropout}", "use a share below 1")
        scale = self.scale or (self.nope_dim + self.rope_dim) ** -0.5
        return dataclasses.replace(self, value_dim=self.value_dim or self.nope_dim, scale=scale)

    def sizes(self) -> tuple[int, int, int]:
        """Widths of all heads' queries, of all heads' keys and values, and of all heads' values."""
        value = self.value_dim or self.nope_dim
        return self.heads * (self.nope_dim + self.rope_dim), self.heads * (self.nope_dim + value), self.heads * value

    def maps(self, ins: Widths) -> list[tuple[str, int, int, bool]]:
        """(name, in, out, bias) in the order of the forward."""
        q, kv, value = self.sizes()
        queries = [("q", ins[0], q, False)]
        if self.q_rank:
            queries = [("q_down", ins[0], self.q_rank, self.bias), ("q_up", self.q_rank, q, False)]
        down = ("kv_down", ins[0], self.kv_rank + self.rope_dim, self.bias)
        return [*queries, down, ("kv_up", self.kv_rank, kv, False), ("out", value, ins[0], self.bias)]

    def norms(self) -> list[tuple[str, int]]:
        """(name, width) of the norms of latents."""
        if self.norm is None:
            return []
        return [*([("q_norm", self.q_rank)] if self.q_rank else []), ("kv_norm", self.kv_rank)]

    def params(self, ins: Widths) -> tuple[Param, ...]:
        out = [Param("gate.weight", (self.heads, ins[0]), Fill("linear", fan_in=ins[0]))] if self.gated else []
        for name, width, rows, bias in self.maps(ins):
            role = "residual" if name == "out" else "linear"
            out.append(Param(f"{name}.weight", (rows, width), Fill(role, fan_in=width)))
            if bias:
                out.append(Param(f"{name}.bias", (rows,), ZEROS))
        for name, width in self.norms():
            out += [dataclasses.replace(p, name=f"{name}.{p.name}") for p in self.norm.params((width,))]
        return tuple(out)

    def projections(self, ins: Widths) -> tuple[str, ...]:
        # kv_up is taken apart behind a cache, and is no map in whole there
        return tuple(name for name in super().projections(ins) if name != "kv_up")

    def flops(self, ins: Widths, seq: int) -> float:
        q, _, value = self.sizes()
        return super().flops(ins, seq) + (q + value) * (seq + 1)

    def saved(self, ins: Widths, seq: int) -> float:
        q, kv, value = self.sizes()
        return ins[0] + self.q_rank + self.kv_rank + q + kv + self.rope_dim + value + self.heads

    def cache(self, ins: Widths, length: int) -> tuple[StateTensor, ...]:
        return (StateTensor("latents", (self.kv_rank + self.rope_dim) * length),)

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        return (Split("tp", "heads", self.heads, "attention heads", code="HYB214"),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Heads are cut; latents, which all heads read, are whole."""
        q, kv, value = ((n, self.heads) for n in self.sizes())
        cuts = {"q.weight": cut(ranks, q), "q_up.weight": cut(ranks, q), "kv_up.weight": cut(ranks, kv)}
        cuts |= {"gate.weight": cut(ranks, (self.heads, self.heads))}
        cuts |= {"out.weight": cut(ranks, value, dim=1), "out.bias": FIRST}
        return Sharded(dataclasses.replace(self, heads=self.heads // ranks), cuts)

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return tuple(name for name, *_ in self.maps(ins) if name in ("q", "q_down", "kv_down")) + ("gate",) * self.gated

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        into = {"q_norm": "q_up", "kv_norm": ""}
        norms = (k.at(name, into[name]) for name, width in self.norms() for k in self.norm.kernels((width,)))
        heads = {"q_rope": self.heads, "k_shared": 1}
        return (*norms, *(self.rope.turns(self.rope_dim, heads) if self.rope is not None else ()))

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        value = self.value_dim or self.nope_dim
        members = [
            f"self.{name} = {emit.linear(name, width, rows, bias=bias)}" for name, width, rows, bias in self.maps(ins)
        ]
        members += [f"self.{name} = {self.norm.constructor((width,), emit, name)}" for name, width in self.norms()]
        if self.gated:
            members.append(f"self.gate = {emit.linear('gate', ins[0], self.heads)}")
        normed = [n for n, _ in self.norms()]
        query = "self.q(x)"
        if self.q_rank:
            down = "self.q_down(x)"
            query = f"self.q_up({applied(self.norm, 'q_norm', down, emit) if 'q_norm' in normed else down})"
        forward = [
            f"q = {query}.unflatten(-1, ({self.heads}, {self.nope_dim + self.rope_dim}))",
            f"latent, k_shared = self.kv_down(x).split(({self.kv_rank}, {self.rope_dim}), dim=-1)",
        ]
        if "kv_norm" in normed:
            forward.append(f"latent = {applied(self.norm, 'kv_norm', 'latent', emit)}")
        if self.rope is not None:
            one = Heads("k_shared.unsqueeze(-2)", "k_shared", 1)
            values = {"q_rope": Heads("q_rope", "q_rope.flatten(-2)", self.heads), "k_shared": one}
            forward += [
                f"q, q_rope = q.split(({self.nope_dim}, {self.rope_dim}), dim=-1)",
                *self.rope.turned(self.rope_dim, values, emit),  # one head of keys, for all
                "q = torch.cat((q, q_rope), dim=-1)",
            ]
        else:
            forward.append("k_shared = k_shared.unsqueeze(-2)  # one head's, for all")
        sizes = {"head_dim": self.nope_dim + self.rope_dim, "value_dim": value, "rank": self.kv_rank}
        dropout = f", dropout={lit(self.dropout)} if self.training else 0.0" if self.dropout else ""
        forward += [
            f"y = {emit.part('latent_attention', **sizes)}(",
            "    q, latent, k_shared, self.kv_up.weight, ctx, state,",
            f"    value_dim={value}, scale={lit(self.scale)}{dropout},",
            ")",
            *(["y = y * self.gate(x).sigmoid().unsqueeze(-1)"] if self.gated else []),
            "return self.out(y.flatten(-2))",
        ]
        ranks = f"rank={self.kv_rank}, rope_dim={self.rope_dim}"
        state = f"ops.LatentState(batch, max_len, {ranks}, device=device, dtype=dtype)"
        return ClassBody(tuple(members), tuple(forward), ("x", "ctx", "state=None"), state)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx, state.get({quote(module.removeprefix('self.'))}))", ATOM)
