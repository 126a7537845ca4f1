"""The groups that kernels are generated for, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hybridc.codegen.triton.group import Form, Group, Input, Output, Router

X, RESIDUAL, GATE = Input("x"), Input("residual"), Input("gate")
WEIGHT, BIAS = Input("weight", "vector"), Input("bias", "vector")
H, Y = Output("h"), Output("y")
GATE_UP = Input("gate_up", parts=("gate", "up"))

RMS = """
square = mean({x} * {x})
rstd = rsqrt(square + eps)
"""
CENTERED = """
center = mean({x})
apart = {x} - center
variance = mean(apart * apart)
rstd = rsqrt(variance + eps)
"""

NORMS = (
    ("rmsnorm", "{x} / sqrt(mean({x}²) + eps) · weight", (WEIGHT,), RMS + "y = {x} * rstd * weight"),
    (
        "zero_centered_rmsnorm",
        "{x} / sqrt(mean({x}²) + eps) · (1 + weight)",
        (WEIGHT,),
        RMS + "y = {x} * rstd * (1 + weight)",
    ),
    ("plain_rmsnorm", "{x} / sqrt(mean({x}²) + eps)", (), RMS + "y = {x} * rstd"),
    (
        "layernorm",
        "({x} - mean) / sqrt(variance + eps) · weight + bias",
        (WEIGHT, BIAS),
        CENTERED + "y = apart * rstd * weight + bias",
    ),
    (
        "layernorm_without_bias",
        "({x} - mean) / sqrt(variance + eps) · weight",
        (WEIGHT,),
        CENTERED + "y = apart * rstd * weight",
    ),
)
"""Names, results in words, parameters, formulae."""

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2")
"""By the names that the ops have for them."""


def norm(name: str, doc: str, parameters: tuple[Input, ...], body: str) -> Group:
    """A norm of `x`."""
    return Group(name, f"y = {doc.format(x='x')}.", (X, *parameters), body.format(x="x"), (Y,), ("eps",))


def added_norm(name: str, doc: str, parameters: tuple[Input, ...], body: str) -> Group:
    """A norm of the sum of `x` and `residual`, which is the stream's next value `h`."""
    return Group(
        f"add_{name}",
        f"h = x + residual; y = {doc.format(x='h')}.",
        (X, RESIDUAL, *parameters),
        "h = cast(x + residual)" + body.format(x="h"),
        (H, Y),
        ("eps",),
        like=("x", "residual"),
    )


def scaled_added_norm(name: str, doc: str, parameters: tuple[Input, ...], body: str) -> Group:
    """As `added_norm`, with `x` times a number."""
    group = added_norm(name, doc, parameters, body)
    return replace(
        group,
        name=f"scaled_{group.name}",
        doc=group.doc.replace("h = x + residual", "h = factor x + residual"),
        body=group.body.replace("h = cast(x + residual)", "h = cast(factor * x + residual)"),
        constants=("factor", *group.constants),
    )


def norm_added(name: str, doc: str, parameters: tuple[Input, ...], body: str) -> Group:
    """A norm that is added to the residual stream."""
    group = norm(name, doc, parameters, body)
    return replace(
        group,
        name=f"{name}_add",
        doc=group.doc.replace("y = ", "y = residual + "),
        inputs=(X, RESIDUAL, *parameters),
        body=group.body.replace("y = ", "y = residual + "),
        like=("x", "residual"),
    )


def head_norm(name: str, doc: str, parameters: tuple[Input, ...], body: str) -> Group:
    """A norm of each segment, a head, with one weight for all."""
    group = norm(name, doc, tuple(replace(p, shared=True) for p in parameters), body)
    return replace(group, name=f"head_{name}", doc=f"{group.doc[:-1]}, in each segment.", segmented=True)


def gated_norm(act: str, first: bool, shared: bool) -> Group:
    """A norm with a gate in front of it, as Mamba-2 has it, or behind it, as delta rules have it; the norm is over each
    segment: a group of channels, or a head, with one weight for all (`shared`)."""
    if first:
        name, doc = f"gated_rmsnorm_{act}", f"y = rmsnorm(x · {act}(gate)) · weight, the norm over each segment."
        body = f"v = x * {act}(gate)" + RMS.format(x="v") + "y = v * rstd * weight"
    else:
        name, doc = f"rmsnorm_gated_{act}", f"y = rmsnorm(x) · weight · {act}(gate), the norm over each segment."
        body = RMS.format(x="x") + f"y = x * rstd * weight * {act}(gate)"
    weight = replace(WEIGHT, shared=shared)
    return Group(f"head_{name}" if shared else name, doc, (X, GATE, weight), body, (Y,), ("eps",), segmented=True)


def activated(act: str) -> Group:
    """An activation."""
    return Group(act, f"y = {act}(x).", (X,), f"y = {act}(x)", (Y,))


def gated_activation(act: str) -> Group:
    """An activation of the gate times the other half of one projection's result (GLU variants: Shazeer, 2020)."""
    return Group(f"{act}_glu", f"y = {act}(gate) · up.", (GATE_UP,), f"y = {act}(gate) * up", (Y,))


def gate(act: str) -> Group:
    """A value times an activation of another."""
    return Group(f"{act}_gate", f"y = x · {act}(gate).", (X, GATE), f"y = x * {act}(gate)", (Y,))


def scaled(group: Group) -> Group:
    """An activation of its argument times a number."""
    (item,) = group.inputs
    first = item.values[0]
    return replace(
        group,
        name=f"scaled_{group.name}",
        doc=group.doc.replace(f"({first})", f"(factor {first})"),
        body=group.body.replace(f"({first})", f"(factor * {first})"),
        constants=("factor",),
    )


def quantized(group: Group, form: Form) -> Group:
    """The group with its last result stored quantized."""
    words = {
        "e4m3_block": "in E4M3 with a factor for each 128 columns",
        "e4m3_row": "in E4M3 with a factor for each row",
        "int8_row": "in 8 bits with a factor for each row",
    }[form]
    *others, last = group.outputs
    again = group.name.removeprefix("scaled_").removeprefix("add_") if others else group.name
    outputs = (*others, replace(last, form=form))
    return replace(group, name=f"{group.name}_{form}", doc=f"{group.doc[:-1]}, {words}.", outputs=outputs, again=again)


def clamped(name: str, where: str, *, interleaved: bool) -> Group:
    """A gated activation within limits (gpt-oss, 2025)."""
    return Group(
        name,
        f"y = g sigmoid(beta g) · (u + offset), with g = min(gate, limit) and u = up within ±limit, {where}.",
        (replace(GATE_UP, interleaved=interleaved),),
        """
        g = at_most(gate, limit)
        u = at_least(at_most(up, limit), -limit)
        y = g * sigmoid(beta * g) * (u + offset)
        """,
        (Y,),
        ("beta", "limit", "offset"),
    )


def rope(name: str, doc: str, *, interleaved: bool) -> Group:
    """Pairs of channels of each head turned by their position's angles (Su et al., 2021)."""
    return Group(
        name,
        doc,
        (
            Input("x", parts=("x_first", "x_second"), interleaved=interleaved),
            Input("cos", shared=True, gradient=False),
            Input("sin", shared=True, gradient=False),
        ),
        """
        y_first = x_first * cos - x_second * sin
        y_second = x_second * cos + x_first * sin
        """,
        (Output("y", parts=("y_first", "y_second"), interleaved=interleaved),),
        segmented=True,
        rest=True,
        width="cos",
    )


OTHERS = (
    rope("rope_halves", "Pairs (i, i + width) of each segment, a head, turned by cos and sin.", interleaved=False),
    rope("rope_pairs", "Pairs (2 i, 2 i + 1) of each segment, a head, turned by cos and sin.", interleaved=True),
    clamped("clamped_swiglu", "the gate first", interleaved=False),
    clamped("clamped_swiglu_pairs", "side by side", interleaved=True),
    Group("softcap", "y = cap tanh(x / cap).", (X,), "y = cap * tanh(x / cap)", (Y,), ("cap",)),
    Group(
        "softmax",
        "y = softmax(x).",
        (X,),
        """
        largest = max(x)
        power = exp(x - fixed(largest))
        total = sum(power)
        y = power / total
        """,
        (Y,),
    ),
    Group(
        "l2norm",
        "y = x / sqrt(sum(x²) + eps).",
        (X,),
        """
        square = sum(x * x)
        scale = rsqrt(square + eps)
        y = x * scale
        """,
        (Y,),
        ("eps",),
    ),
    Group(
        "dequantize_row",
        "y = codes · scale · weight, a scale for each row and a weight for each column.",
        (Input("codes", gradient=False), Input("scale", "row"), WEIGHT),
        "y = codes * scale * weight",
        (Y,),
        like=("weight",),
    ),
    Group(
        "dequantize_block",
        "y = codes · factor · scale, a factor for each row and 128 columns.",
        (Input("codes", gradient=False), Input("factor", "block", gradient=False), Input("scale", "row")),
        "y = codes * factor * scale",
        (Y,),
        like=("scale",),
    ),
    Group(
        "sigmoid_row_gate",
        "y = x sigmoid(gate) + residual, a gate for each row.",
        (X, Input("gate", "row"), RESIDUAL),
        "y = x * sigmoid(gate) + residual",
        (Y,),
        like=("x", "residual"),
    ),
    Group(
        "scaled_add",
        "y = residual + factor x.",
        (X, RESIDUAL),
        "y = residual + factor * x",
        (Y,),
        ("factor",),
        like=("x", "residual"),
    ),
    Group(
        "layer_scaled_add",
        "y = residual + weight · x, a weight for each column.",
        (X, RESIDUAL, WEIGHT),
        "y = residual + weight * x",
        (Y,),
        like=("x", "residual"),
    ),
)


def _all() -> dict[str, Group]:
    plain = [make(*row) for make in (norm, added_norm, scaled_added_norm, norm_added, head_norm) for row in NORMS]
    plain += [make(act) for make in (activated, gated_activation) for act in ACTIVATIONS]
    plain += [gate(act) for act in (*ACTIVATIONS, "sigmoid")]
    both = (True, False)
    plain += [gated_norm(act, first, shared) for act in ("silu", "sigmoid") for first in both for shared in both]
    made = {g.name: g for g in (*plain, *OTHERS)}
    for name in ("rmsnorm_e4m3_block", "add_rmsnorm_e4m3_block", "layernorm_e4m3_block", "silu_glu_e4m3_block",
                 "rmsnorm_e4m3_row", "add_rmsnorm_e4m3_row", "silu_glu_e4m3_row",
                 "rmsnorm_int8_row", "add_rmsnorm_int8_row", "relu2_glu_int8_row", "scaled_silu_glu"):  # fmt: skip
        made[name] = derived(name, made)
    return made


FORMS: tuple[Form, ...] = ("e4m3_block", "e4m3_row", "int8_row")


def derived(name: str, groups: Mapping[str, Group]) -> Group:
    """The group of a name: one of `groups`, an activation of those that is scaled, or one with a quantized result.

    Raises KeyError for a name that is none.
    """
    if name in groups:
        return groups[name]
    for form in FORMS:
        if name.endswith(f"_{form}"):
            return quantized(derived(name.removesuffix(f"_{form}"), groups), form)
    inner = name.removeprefix("scaled_")
    if inner != name and inner.removesuffix("_glu") in ACTIVATIONS:
        return scaled(derived(inner, groups))
    raise KeyError(name)


GROUPS = _all()
"""By name. `derived` makes more of them."""

SOFTMAX = """
largest = max(logits)
power = exp(logits - fixed(largest))
total = sum(power)
score = power / total
"""
SIGMOID = "score = sigmoid(logits)"

ROUTERS = {
    r.name: r
    for r in (
        Router("softmax_router", "The k largest of softmax(logits).", SOFTMAX),
        Router("sigmoid_router", "The k largest of sigmoid(logits).", SIGMOID),
        Router("softmax_bias_router", "The k largest of softmax(logits) + bias.", SOFTMAX, bias=True),
        Router("sigmoid_bias_router", "The k largest of sigmoid(logits) + bias.", SIGMOID, bias=True),
    )
}
"""By name."""
