"""What NVIDIA's Transformer Engine computes, and for which uses it has no kernel (as of 2.20)."""

from __future__ import annotations

from hybridc.ir.backends.base import Backend, Facts, Offer
from hybridc.ir.formats import parse

WIDEST = 256
"""Channels of a head beyond which neither cuDNN nor flash-attn has kernels."""

WIDEST_BACKWARD = {80: 128, 100: 128}
"""Channels of a head beyond which cuDNN has no backward, by capability (its support matrix, 9.18)."""


def _number(facts: Facts, name: str) -> int:
    """A fact that is a whole number, 0 where it is missing or None."""
    found = facts.get(name)
    return found if isinstance(found, int) else 0


def _products(capability: int, recipe: str, options: Facts, widths: tuple[int, ...]) -> str:
    """Why products in an FP8 recipe cannot be served, with operands of these widths."""
    if capability < 90:
        return f"sm{capability} has no FP8"
    if options.get("shared"):
        return "its scales are those of what one tensor-parallel rank has"
    if recipe == "row":
        return "it has no recipe with a scale for each row"
    if recipe == "delayed":
        return "it moves the histories of all layers on whenever one region ends, and each layer is a region"
    if options.get("fwd") == "e5m2":
        return "it has no recipe with E5M2 in the forward"
    if recipe == "mx" and capability < 100:
        return "it has mx from sm100 on"
    if recipe == "block128" and capability >= 100 and options.get("scale") != "pow2":
        return "its block128 on sm100 is made of mx blocks, whose scales are powers of two (scale=pow2)"
    multiple = 32 if recipe == "mx" else 16
    uneven = [w for w in widths if w % multiple]
    return f"a width of {uneven[0]} is no multiple of {multiple}" if uneven else ""


def _linear(facts: Facts) -> str:
    return "its products of fp32 numbers are TF32's" if facts.get("dtype") == "fp32" else ""


def _fp8_linear(facts: Facts) -> str:
    widths = (_number(facts, "ins"), _number(facts, "out"))
    return _products(_number(facts, "capability"), str(facts.get("recipe")), facts, widths)


def _norm(facts: Facts) -> str:
    return "its RMSNorm always has a weight" if facts.get("affine") is False else ""


def _layernorm(facts: Facts) -> str:
    return "its LayerNorm always has a bias" if facts.get("bias") is False else ""


def _attention(facts: Facts) -> str:
    """Uses that neither cuDNN's kernels nor the way to them serve; for these the library would compute all scores."""
    head, value = _number(facts, "head_dim"), _number(facts, "value_dim") or _number(facts, "head_dim")
    capability, wide = _number(facts, "capability"), max(head, value)
    limit = WIDEST_BACKWARD.get(capability, WIDEST)
    if facts.get("dtype") not in ("bf16", "fp16"):
        return f"its kernels are for bf16 and fp16, not {facts.get('dtype')}"
    if wide > WIDEST:
        return f"heads of {wide} channels are wider than {WIDEST}"
    if head % 8 or value % 8:
        return f"heads of {head if head % 8 else value} channels are no multiple of 8"
    if wide > limit and not (capability == 100 and (head, value) == (192, 128)):
        return f"cuDNN has no backward for heads of {wide} channels on sm{capability}"
    if facts.get("softcap"):
        return "cuDNN's attention has no softcap"
    return "cuDNN's attention has no dropout in a window" if facts.get("dropout") and facts.get("window") else ""


def _experts(facts: Facts) -> str:
    text = str(facts.get("format") or "")
    format = parse(text)
    if format is None:
        return _linear(facts)
    if format.name != "fp8":
        return f"it has no products in {text}"
    widths = (_number(facts, "dim"), _number(facts, "hidden"))
    options = {**dict(format.options), "shared": facts.get("shared")}
    return _products(_number(facts, "capability"), format.recipe, options, widths)


TE = Backend(
    "te",
    "transformer-engine",
    ("cuda:sm80", "cuda:sm90", "cuda:sm100"),
    {
        "linear": Offer("te", "te.Linear", _linear),
        "fp8_linear": Offer("te", "te.FP8Linear", _fp8_linear),
        "rmsnorm": Offer("te", "te.RMSNorm", _norm),
        "zero_centered_rmsnorm": Offer("te", "te.ZeroCenteredRMSNorm"),
        "layernorm": Offer("te", "te.LayerNorm", _layernorm),
        "attention": Offer("te", "te.attention", _attention),
        "experts": Offer("te", "te.Experts", _experts),
    },
)
"""Transformer Engine from version 2.20."""
