"""FP8 recipes: which blocks share a scale, for each of the three products of a linear map."""

from __future__ import annotations

from dataclasses import dataclass

from hybridc.runtime.quant.elements import ELEMENTS, Element
from hybridc.runtime.quant.scaling import WHOLE, Scaling


@dataclass(frozen=True)
class Recipe:
    """How operands are quantized. Each operand of a product is laid out with the dimension that is summed over last.

    Activations and gradients have blocks of `activation`, weights of `weight`; `forward` is the element format of
    activations and weights, `backward` that of gradients. `history` is how many former steps' largest numbers set the
    scale, 0 where the present ones do.
    """

    name: str
    activation: Scaling
    weight: Scaling
    forward: Element
    backward: Element
    history: int = 0

    @property
    def turns(self) -> bool:
        """Whether a quantized weight serves the transposed product as it is, since its blocks are square."""
        return self.weight.rows == self.weight.columns


HISTORY = 16
"""Steps whose largest numbers set a scale of the delayed recipe."""

DEFAULTS: dict[str, tuple[Scaling, Scaling, str]] = {
    "tensor": (Scaling(WHOLE, WHOLE), Scaling(WHOLE, WHOLE), "e5m2"),
    "delayed": (Scaling(WHOLE, WHOLE), Scaling(WHOLE, WHOLE), "e5m2"),
    "row": (Scaling(1, WHOLE), Scaling(1, WHOLE), "e4m3"),
    "block128": (Scaling(1, 128), Scaling(128, 128), "e4m3"),
    "mx": (Scaling(1, 32, power=True), Scaling(1, 32, power=True), "e4m3"),
}
"""Blocks of activations and of weights, and the usual element format of gradients.

`tensor` and `delayed` follow Transformer Engine (hybrid formats), `row` torch's rowwise `_scaled_mm`, `block128`
DeepSeek-V3 (2024, section 3.3), `mx` the OCP microscaling formats (2023) with E8M0 scales.
"""


def recipe(name: str, *, fwd: str = "e4m3", bwd: str = "", scale: str = "fp32") -> Recipe:
    """A recipe by its name in a spec. `scale="pow2"` rounds the factors of `block128` up to powers of two."""
    activation, weight, gradients = DEFAULTS[name]
    if scale == "pow2":
        activation, weight = (Scaling(s.rows, s.columns, power=True) for s in (activation, weight))
    history = HISTORY if name == "delayed" else 0
    return Recipe(name, activation, weight, ELEMENTS[fwd], ELEMENTS[bwd or gradients], history)
