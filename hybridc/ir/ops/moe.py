"""moe: a mixture of feed-forward experts with a top-k router."""

from __future__ import annotations

import dataclasses
import math
from typing import Self

from hybridc.ir.attrs import Choice, Flag, Float, Int, attr
from hybridc.ir.emit import ATOM, ClassBody, Code, Emit, broken, call, lit, quote
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import ZEROS, Check, Fill, Op, Param, Split, Widths, op
from hybridc.ir.ops.mlp import ACTIVATIONS, MLP
from hybridc.ir.sharding import FIRST, SAME, Sharded, cut


@op("moe", "moe")
class MoE(Op):
    """Σ over the top_k experts of weight · expert(x), and a shared expert when `shared` is not 0.

    Scores are the softmax or, each for itself, the sigmoid of router x; the top_k best are chosen, weighted by their
    scores, which `renormalize` makes sum to 1, times `scaling`. With `groups`, only experts of the `top_groups` groups
    with the largest sums of their two best scores can be chosen, and `correction_bias` is added for the choice alone
    (DeepSeek-V3, 2024). Parameters: router [experts, in] (fp32), experts.gate_up [experts, 2 hidden, in] or experts.up
    [experts, hidden, in], experts.down [experts, in, hidden]; `latent`: latent_down [latent, in], latent_up
    [in, latent], and `latent` in place of `in` for the experts.
    """

    experts: int = attr(Int(), doc="number of experts")
    hidden: int = attr(Int(), doc="width inside an expert")
    top_k: int = attr(Int(), doc="experts that a token visits")
    act: str = attr(Choice(tuple(ACTIVATIONS)), "silu", doc="activation")
    gated: bool = attr(Flag(), True, doc="multiply with a second projection")
    scores: str = attr(Choice(("softmax", "sigmoid")), "softmax", doc="how router logits become scores")
    renormalize: bool = attr(Flag(), True, doc="make the weights of the chosen experts sum to 1")
    renormalize_eps: float = attr(Float(0.0), 0.0, doc="added to the sum that renormalize divides by")
    correction_bias: bool = attr(Flag(), False, doc="a bias on the scores that only the choice sees; no gradient")
    groups: int = attr(Int(), 1, doc="groups of experts")
    top_groups: int = attr(Int(), 0, doc="groups that a token's experts are from", derived="groups")
    scaling: float = attr(Float(), 1.0, doc="multiplies the weights")
    router_bias: bool = attr(Flag(), False, doc="bias on the router's logits")
    bias: bool = attr(Flag(), False, doc="biases on the experts' projections")
    beta: float = attr(Float(0.0, strict=True), 1.0, doc="silu(x) becomes x sigmoid(beta x)")
    limit: float | None = attr(
        Float(0.0, strict=True), None, doc="the gate is at most this, the up part within +- this", optional=True
    )
    up_offset: float = attr(Float(), 0.0, doc="added to the up part")
    latent: int = attr(Int(0), 0, doc="width in which the experts work, if not the stream's")
    latent_bias: bool = attr(Flag(), False, doc="biases on the projections to and from that width")
    shared: int = attr(Int(0), 0, doc="width inside an expert that every token visits; 0: none")
    shared_bias: bool = attr(Flag(), False, doc="biases on the shared expert's projections")
    shared_gate: bool = attr(Flag(), False, doc="multiply the shared expert with sigmoid of a projection to one number")
    aux_coef: float = attr(Float(0.0), 0.0, doc="coefficient of the load-balancing loss (Fedus et al., 2021)")
    z_coef: float = attr(Float(0.0), 0.0, doc="coefficient of the router z-loss (Zoph et al., 2022)")

    def resolve(self, ins: Widths, check: Check) -> Self:
        if self.top_k > self.experts:
            check.error(
                "HYB207",
                "top_k",
                f"top_k {self.top_k} is more than the {self.experts} experts",
                f"use {self.experts} or less for top_k",
            )
        self._resolve_groups(check)
        if self.act != "silu" and self.beta != 1.0:
            check.error("HYB221", "beta", f"beta is silu's, and the activation is {self.act}", "leave it out")
        if not self.gated and (self.limit is not None or self.up_offset):
            name = "limit" if self.limit is not None else "up_offset"
            check.error("HYB221", name, f"`{name}` is for gated experts", "leave it out, or use gated=true")
        for name in ("shared_gate", "shared_bias"):
            if getattr(self, name) and not self.shared:
                check.error("HYB221", name, f"`{name}` without a shared expert", "give its width as `shared`")
        if self.latent_bias and not self.latent:
            check.error("HYB221", "latent_bias", "`latent_bias` without a width", "give it as `latent`")
        return dataclasses.replace(self, top_groups=self.top_groups or self.groups)

    def _resolve_groups(self, check: Check) -> None:
        size, rest = divmod(self.experts, self.groups)
        top_groups = self.top_groups or self.groups
        if rest:
            label = f"{self.experts} experts do not divide into {self.groups} groups"
            check.error("HYB207", "groups", label, f"use a divisor of {self.experts} for groups")
        elif top_groups > self.groups:
            label = f"top_groups {top_groups} is more than the {self.groups} groups"
            check.error("HYB207", "top_groups", label, f"use {self.groups} or less")
        elif top_groups < self.groups and size < 2:
            label = f"groups of {size} expert have no two best scores"
            check.error("HYB207", "groups", label, "use groups of two experts or more")
        elif self.top_k > top_groups * size and self.top_k <= self.experts:
            label = f"top_k {self.top_k} is more than the {top_groups * size} experts of {top_groups} groups"
            check.error("HYB207", "top_k", label, "use a smaller top_k, or more top_groups")

    def shared_mlp(self) -> MLP:
        """The shared expert as an op of its own."""
        return MLP(self.shared, act=self.act, gated=self.gated, bias=self.shared_bias)

    def params(self, ins: Widths) -> tuple[Param, ...]:
        first, rows = ("gate_up", 2 * self.hidden) if self.gated else ("up", self.hidden)
        down = Fill("residual", fan_in=self.hidden)
        width = self.latent or ins[0]
        out = [Param("router.weight", (self.experts, ins[0]), Fill("linear", fan_in=ins[0]), fp32=True)]
        if self.router_bias:
            out.append(Param("router.bias", (self.experts,), ZEROS, fp32=True))
        if self.correction_bias:
            out.append(Param("correction_bias", (self.experts,), ZEROS, fp32=True))
        if self.latent:
            out.append(Param("latent_down.weight", (self.latent, ins[0]), Fill("linear", fan_in=ins[0])))
            out.append(Param("latent_up.weight", (ins[0], self.latent), Fill("residual", fan_in=self.latent)))
            if self.latent_bias:
                out.append(Param("latent_down.bias", (self.latent,), ZEROS))
                out.append(Param("latent_up.bias", (ins[0],), ZEROS))
        out.append(Param(f"experts.{first}", (self.experts, rows, width), Fill("linear", fan_in=width)))
        out.append(Param("experts.down", (self.experts, width, self.hidden), down))
        if self.bias:
            out.append(Param(f"experts.{first}_bias", (self.experts, rows), ZEROS))
            out.append(Param("experts.down_bias", (self.experts, width), ZEROS))
        if self.shared:
            out += [dataclasses.replace(p, name=f"shared.{p.name}") for p in self.shared_mlp().params(ins)]
        if self.shared_gate:
            out.append(Param("shared_gate.weight", (1, ins[0]), Fill("linear", fan_in=ins[0])))
        return tuple(out)

    def flops(self, ins: Widths, seq: int) -> float:
        """Router, shared expert and the top_k experts that a token visits."""
        expert = 2.0 * (self.latent or ins[0]) * self.hidden * (3 if self.gated else 2)
        biases = 2.0 * self.experts * (self.hidden * (2 if self.gated else 1) + (self.latent or ins[0])) * self.bias
        return super().flops(ins, seq) - biases + self.top_k * expert

    def saved(self, ins: Widths, seq: int) -> float:
        inside = (3 if self.gated else 2) * (self.top_k * self.hidden + self.shared)
        return ins[0] + self.experts + self.top_k * ins[0] + inside

    def splits(self, ins: Widths) -> tuple[Split, ...]:
        out = [
            Split("ep", "experts", self.experts, "experts"),
            Split("tp", "hidden", self.hidden, "hidden channels of the experts"),
        ]
        if self.shared:
            out.append(Split("tp", "shared", self.shared, "hidden channels of the shared expert"))
        return tuple(out)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Each expert's hidden channels are cut, and the shared one's; routers and latents are whole."""
        hidden = (self.hidden, self.hidden)
        first = cut(ranks, *(hidden,) * (2 if self.gated else 1), dim=1)
        names = (f"experts.{name}{bias}" for name in ("gate_up", "up") for bias in ("", "_bias"))
        cuts = dict.fromkeys(names, first)
        cuts |= {"experts.down": cut(ranks, hidden, dim=2), "experts.down_bias": FIRST}
        cuts |= {"latent_up.bias": FIRST, "correction_bias": SAME}
        op = dataclasses.replace(self, hidden=self.hidden // ranks, shared=self.shared // ranks)
        if self.shared and (shared := self.shared_mlp().sharded(rule, ins, ranks)) is not None:
            cuts |= {f"shared.{name}": part for name, part in shared.cuts.items()}
        return Sharded(op, cuts, adds=("latent_up",))

    def projections(self, ins: Widths) -> tuple[str, ...]:
        """All but the gate of the shared expert, one number a token, which stays as the router does."""
        return tuple(name for name in super().projections(ins) if name != "shared_gate")

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        choice: dict[str, float | int | bool] = {
            "k": self.top_k,
            "renormalize": self.renormalize,
            "eps": self.renormalize_eps,
        }
        choice |= {"scaling": self.scaling, "groups": self.groups, "top_groups": self.top_groups or self.groups}
        bias = "bias_" if self.correction_bias else ""
        out = [inside(f"{self.scores}_{bias}router", self.experts, "router", constants=choice)]
        clamped = (self.beta, self.limit, self.up_offset) != (1.0, None, 0.0)
        if not clamped:
            out.append(inside(f"{self.act}_glu" if self.gated else self.act, self.hidden, "experts", "experts.down"))
        elif self.act == "silu" and self.gated:
            limit = math.inf if self.limit is None else self.limit
            numbers = {"beta": self.beta, "limit": limit, "offset": self.up_offset}
            out.append(inside("clamped_swiglu", self.hidden, "experts", "experts.down", constants=numbers))
        if self.shared:
            out += [k.at(f"shared.{k.part}", f"shared.{k.into}") for k in self.shared_mlp().kernels(ins)]
        if self.shared_gate:
            out.append(inside("sigmoid_row_gate", ins[0], "shared_gate"))
        return tuple(out)

    def body(self, ins: Widths, emit: Emit) -> ClassBody:
        members = [f"self.router = {call('nn.Linear', ins[0], self.experts, bias=self.router_bias)}"]
        if self.correction_bias:
            members.append(f"self.correction_bias = nn.Parameter(torch.empty({self.experts}), requires_grad=False)")
        width = self.latent or ins[0]
        options: dict[str, object] = {
            "bias": self.bias or "",
            "beta": self.beta if self.beta != 1.0 else "",
            "limit": self.limit if self.limit is not None else "",
            "up_offset": self.up_offset or "",
        }
        given = {"act": quote(self.act), "gated": self.gated, **{k: v for k, v in options.items() if v != ""}}
        maker = self._maker(width, emit)
        if inside := self._inside(emit, own=maker.startswith("gpu.")):
            given["inside"] = inside
        products = [emit.product(f"experts.{n}") for n in ("gate_up" if self.gated else "up", "down")]
        if any(products):
            given["products"] = f"({', '.join(p or 'None' for p in products)})"
        made = call(maker, self.experts, width, self.hidden, **given)
        members += broken(f"self.experts = {made}")
        bias = ", self.router.bias" if self.router_bias else ""
        aux = f"experts={self.experts}, aux_coef={lit(self.aux_coef)}, z_coef={lit(self.z_coef)}"
        forward = [
            f"logits = {emit.part('router_logits')}(x, self.router.weight{bias})",
            *broken(f"weights, ids = {self._choice(emit)}"),
            f"ctx.router_stats({quote(emit.path)}, logits, ids, {aux})",
        ]
        routed = "self.experts(x, weights.to(x.dtype), ids)"
        if self.latent:
            members.append(
                f"self.latent_down = {emit.linear('latent_down', ins[0], self.latent, bias=self.latent_bias)}"
            )
            members.append(f"self.latent_up = {emit.linear('latent_up', self.latent, ins[0], bias=self.latent_bias)}")
            routed = "self.latent_up(self.experts(self.latent_down(x), weights.to(x.dtype), ids))"
        inner = (("shared", self.shared_mlp().body(ins, emit.below("shared"))),) if self.shared else ()
        if self.shared_gate:
            members.append(f"self.shared_gate = {call('nn.Linear', ins[0], 1, bias=False)}")
        forward += self._sum(routed, emit)
        return ClassBody(tuple(members), tuple(forward), ("x", "ctx"), inner=inner)

    def _sum(self, routed: str, emit: Emit) -> list[str]:
        """Lines that return what the experts make of a token, with what the shared one does."""
        if not self.shared:
            return [f"return {routed}"]
        if not self.shared_gate:
            return [f"return {routed} + self.shared(x)"]
        if made := emit.generated("shared_gate", "self.shared(x)", "self.shared_gate(x)", routed):
            return [f"return {made}"]
        return ["shared = self.shared_gate(x).sigmoid() * self.shared(x)", f"return {routed} + shared"]

    def _maker(self, width: int, emit: Emit) -> str:
        """What makes the experts' module."""
        first = "gate_up" if self.gated else "up"
        formats = {emit.formats.get(f"experts.{name}", "") for name in (first, "down")}
        facts = {"experts": self.experts, "dim": width, "hidden": self.hidden, "bias": self.bias, "act": self.act}
        facts["shared"] = bool({f"experts.{first}", "experts.down"} & emit.shared)
        return emit.part("experts", **facts, formats=tuple(sorted(formats)))

    def _inside(self, emit: Emit, *, own: bool) -> str:
        """The generated kernel between an expert's products, as a function of one tensor; "" where there is none, or
        where the experts are not `own` kernels' but a library's."""
        name, kernel = emit.inner.get("experts", ("", None))
        if kernel is None or not own:
            return ""
        options = ", ".join(f"{k}={lit(v)}" for k, v in kernel.options().items())
        return f"partial(kernels.{name}, {options})" if options else f"kernels.{name}"

    def _choice(self, emit: Emit) -> str:
        """The call that chooses experts from `logits`."""
        if made := emit.generated("router", "logits", *(["self.correction_bias"] if self.correction_bias else [])):
            return made
        options: dict[str, object] = {"renormalize": self.renormalize}
        if self.renormalize_eps:
            options["eps"] = self.renormalize_eps
        if self.correction_bias:
            options["bias"] = "self.correction_bias"
        if self.top_groups and self.top_groups < self.groups:
            options |= {"groups": self.groups, "top_groups": self.top_groups}
        if self.scaling != 1.0:
            options["scaling"] = self.scaling
        return call(emit.part(f"{self.scores}_topk"), "logits", self.top_k, **options)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        return Code(f"{module}({args[0].text}, ctx)", ATOM)
