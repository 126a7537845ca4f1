"""quantize: a value as the quantized products of a region read it, once for all of them."""

from __future__ import annotations

from typing import ClassVar

from hybridc.ir.attrs import Choice, attr
from hybridc.ir.emit import ATOM, Code, Emit, call
from hybridc.ir.formats import OPTIONS, RECIPES, Format
from hybridc.ir.ops.base import Op, Widths, op
from hybridc.ir.places import REDUCED
from hybridc.ir.sharding import Rule


@op("quantize")
class Quantize(Op):
    """The operand in a number format. The precision pass puts it in front of ops whose products of the operand are all
    in this format; they take what it makes in place of the operand."""

    inserted: ClassVar[bool] = True

    format: str = attr(Choice(("fp8", "bitnet")), doc="number format")
    recipe: str = attr(Choice(("", *RECIPES)), "", doc="recipe of fp8")
    fwd: str = attr(Choice(OPTIONS["fwd"]), "e4m3", doc="element format of fp8's forward")
    bwd: str = attr(Choice(("", *OPTIONS["bwd"])), "", doc="element format of fp8's gradients")
    scale: str = attr(Choice(OPTIONS["scale"]), "fp32", doc="kind of fp8's scales")

    @classmethod
    def of(cls, format: Format) -> Quantize:
        """The op that makes this format."""
        return cls(format.name, format.recipe, **dict(format.options))

    def made(self) -> Format:
        """The format that the op makes."""
        options = tuple((name, getattr(self, name)) for name in OPTIONS)
        return Format(self.format, self.recipe, options if self.recipe else ())

    def saved(self, ins: Widths, seq: int) -> float:
        return 0.0

    def rules(self, ins: Widths, ranks: int) -> tuple[Rule, ...]:
        """On whole tokens and all of them, since a recipe may take its scale from all. What it makes is not moved: what
        reads it can read it there."""
        return (Rule("", (REDUCED,), REDUCED),)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        if self.format == "bitnet":
            return Code(f"{emit.part('bit_input')}({args[0].text})", ATOM)
        given = {"fwd": self.fwd, "bwd": self.bwd, "scale": self.scale}
        usual = {"fwd": "e4m3", "bwd": "", "scale": "fp32"}
        options = {k: f'"{v}"' for k, v in given.items() if v != usual[k]}
        maker = emit.part("fp8_input", recipe=self.recipe, **given)
        return Code(call(maker, args[0].text, f'"{self.recipe}"', **options), ATOM)
