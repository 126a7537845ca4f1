"""Number formats of projections, as rules write them: `bitnet`, `bitnet(packed)`, `fp8(block128, bwd=e5m2)`."""

from __future__ import annotations

from dataclasses import dataclass

RECIPES = ("tensor", "delayed", "row", "block128", "mx")
"""Recipes of FP8: one scale for a tensor, from it or from former ones, or for a row, a block, 32 numbers in a row."""

OPTIONS: dict[str, tuple[str, ...]] = {"fwd": ("e4m3", "e5m2"), "bwd": ("e4m3", "e5m2"), "scale": ("fp32", "pow2")}
"""Options of fp8 and what each can be: element formats of the forward's operands and of gradients, and scales."""


@dataclass(frozen=True)
class Format:
    """A format that emitted code computes products in. `options` are fp8's; `recipe` is fp8's, or "packed": bitnet with
    weights that are ternary already, 2 bits each."""

    name: str
    recipe: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def shared(self) -> bool:
        """Whether one quantized value serves several products: not where each remembers scales of its own."""
        return self.recipe != "delayed"

    @property
    def packed(self) -> bool:
        """Whether the weights are kept in the format itself, and not in the module's dtype."""
        return self.recipe == "packed"

    @property
    def of_input(self) -> Format:
        """The format of what enters the products: the same whichever way weights are kept."""
        return Format(self.name) if self.packed else self

    def arguments(self) -> list[str]:
        """The recipe and the options as arguments of an emitted constructor."""
        return [f'"{self.recipe}"', *(f'{k}="{v}"' for k, v in self.options)]


def parse(text: str) -> Format | None:
    """The format that canonical text names; None for plain dtypes, which no product is quantized in."""
    if text in ("bitnet", "bitnet(packed)"):
        return Format("bitnet", "" if text == "bitnet" else "packed")
    if not text.startswith("fp8("):
        return None
    recipe, *rest = text.removeprefix("fp8(").removesuffix(")").split(", ")
    pairs = (tuple(item.split("=")) for item in rest)
    return Format("fp8", recipe, tuple((k, v) for k, v in pairs))
