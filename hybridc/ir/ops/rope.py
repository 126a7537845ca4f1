"""rope: rotary positions, an attribute of attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hybridc.ir.attrs import Choice, Flag, Float, Floats, Int, attr, show
from hybridc.ir.emit import Emit, call, quote
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import Check, Op, op


@dataclass(frozen=True)
class Heads:
    """A value of `heads` heads as text: `shaped` is it as [..., heads, head_dim], `flat` with heads side by side."""

    shaped: str
    flat: str
    heads: int


@op("rope")
class Rope(Op):
    """Rotary position embedding over the first `partial` of each head, in two halves (Su et al., 2021).

    Kinds: `linear` divides positions by `factor`; `llama3` scales long wavelengths only (Llama 3.1); `yarn` blends by
    wavelength and scales cos and sin (Peng et al., 2023); `longrope` divides each pair's frequency by its entry of
    `short`, or of `long` in documents beyond original_max tokens, and scales cos and sin (Ding et al., 2024).
    """

    record: ClassVar[bool] = True

    theta: float = attr(Float(1.0, strict=True), 10000.0, doc="base of the wavelengths")
    kind_: str = attr(
        Choice(("default", "linear", "llama3", "yarn", "longrope")), "default", doc="how positions are scaled"
    )
    partial: float = attr(Float(0.0, strict=True), 1.0, doc="share of the head that rotates")
    factor: float = attr(Float(0.0, strict=True), 1.0, doc="how much longer than the original context")
    low_freq_factor: float = attr(Float(0.0, strict=True), 1.0, doc="llama3")
    high_freq_factor: float = attr(Float(0.0, strict=True), 4.0, doc="llama3")
    original_max: int = attr(Int(), 8192, doc="context length before scaling (llama3, yarn, longrope)")
    beta_fast: float = attr(Float(0.0, strict=True), 32.0, doc="yarn")
    beta_slow: float = attr(Float(0.0, strict=True), 1.0, doc="yarn")
    attention_factor: float | None = attr(
        Float(0.0, strict=True),
        None,
        doc="yarn, longrope: multiplies cos and sin; none: 0.1 ln(factor) + 1 in yarn",
        optional=True,
    )
    truncate: bool = attr(Flag(), True, doc="yarn: round the blended range outwards")
    short: tuple[float, ...] | None = attr(Floats(0), None, doc="longrope: divisors, one a pair", optional=True)
    long: tuple[float, ...] | None = attr(Floats(0), None, doc="longrope: the same for long documents", optional=True)
    interleaved: bool = attr(Flag(), False, doc="pairs are neighbours instead of halves of the head")

    def rotated(self, head_dim: int) -> int:
        """Channels of a head that rotate."""
        return int(head_dim * self.partial)

    def check_factors(self, head_dim: int, check: Check) -> None:
        """Reports divisors that are missing or not one a pair."""
        if self.kind_ != "longrope":
            return
        pairs = self.rotated(head_dim) // 2
        for name in ("short", "long"):
            divisors = getattr(self, name) or ()
            if len(divisors) != pairs or any(d <= 0 for d in divisors):
                label = f"longrope's `{name}` has {len(divisors)} divisors for {pairs} pairs of channels"
                check.error("HYB203", "rope", label, f"give {pairs} positive numbers")

    def turns(self, head_dim: int, heads: Mapping[str, int]) -> tuple[Kernel, ...]:
        """The kernels that turn values of so many heads by name, as parts of an op."""
        kernel = "rope_pairs" if self.interleaved else "rope_halves"
        width = self.rotated(head_dim) // 2
        return tuple(inside(kernel, width, f"{name}_rope", segments=count) for name, count in heads.items())

    def turned(self, head_dim: int, values: Mapping[str, Heads], emit: Emit) -> list[str]:
        """Lines that turn values and leave them under their names as [..., heads, head_dim]."""
        table = emit.constant("ROPE", self.construct(head_dim))
        if not all(f"{name}_rope" in emit.inner for name in values):
            shaped = ", ".join(v.shaped for v in values.values())
            return [f"{', '.join(values)} = {emit.part('rope')}({shaped}, ctx.rope({table}))"]
        lines = [f"cos, sin = ctx.rope_rows({table})"]
        for name, v in values.items():
            made = emit.generated(f"{name}_rope", v.flat, "cos", "sin")
            lines.append(f"{name} = {made}.unflatten(-1, ({v.heads}, {head_dim}))")
        return lines

    def construct(self, head_dim: int) -> str:
        """The runtime's record of this rope for a head size."""
        used = {
            "default": (),
            "linear": ("factor",),
            "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max"),
            "longrope": ("original_max", "attention_factor", "short", "long"),
            "yarn": ("factor", "original_max", "beta_fast", "beta_slow", "attention_factor", "truncate"),
        }[self.kind_]
        default = {f.name: f.default for f in dataclasses.fields(self)}
        extra = {k: getattr(self, k) for k in used if getattr(self, k) != default[k] or k == "original_max"}
        kind = {} if self.kind_ == "default" else {"kind": quote(self.kind_)}
        extra = {k: show(v) if isinstance(v, tuple) else v for k, v in extra.items()}
        pairs = {"interleaved": True} if self.interleaved else {}
        return call("ops.Rope", dim=self.rotated(head_dim), theta=self.theta, **kind, **extra, **pairs)
