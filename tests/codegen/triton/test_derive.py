"""Programs and their gradients, for groups that no model has: the formulae themselves, run by torch, are the truth."""

import os
import random

import pytest
import torch
from torch.nn import functional as F

from hybridc.codegen.triton.derive import pair
from hybridc.codegen.triton.group import Group, Input, Output
from hybridc.codegen.triton.groups import GROUPS
from hybridc.codegen.triton.kernel_code import kernel
from hybridc.codegen.triton.program import parse
from hybridc.codegen.triton.share import shared
from hybridc.codegen.triton_code import Use, emit_kernels
from hybridc.runtime.kernels import rowwise
from tests.codegen.triton.emitted import load

TORCH = {
    "abs": torch.abs,
    "at_least": lambda x, c: x.clamp(min=c),
    "at_most": lambda x, c: x.clamp(max=c),
    "cast": lambda x: x,
    "erf": torch.erf,
    "exp": torch.exp,
    "fixed": torch.detach,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "log": torch.log,
    "max": lambda x: x.amax(-1, keepdim=True),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sqrt": torch.sqrt,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "tanh": torch.tanh,
}
EXAMPLES = min(300, int(os.environ.get("HYBRIDC_EXAMPLES", "30")))
X, Z, V, R = Input("x"), Input("z"), Input("v", "vector"), Input("r", "row")


def agree(body, inputs=(X, Z, V, R), rows=5, width=9, tolerance=2e-5, draw=torch.randn):
    """Holds the kernels of formulae, the last of which makes `y`, against the formulae."""
    group = Group("made", "Made up.", inputs, body, (Output("y"),))
    module = load(emit_kernels([Use("made", width)], "One group.", {"made": group}), "emitted_made")
    generator = torch.Generator().manual_seed(len(body))
    shapes = {"full": (rows, width), "vector": (width,), "row": (rows, 1)}
    wide = {i.name: draw(shapes[i.kind], generator=generator, dtype=torch.float64) for i in inputs}
    narrow = {n: x.float().requires_grad_() for n, x in wide.items()}
    names = {**TORCH, **{n: x.requires_grad_() for n, x in wide.items()}}
    for line in filter(None, map(str.strip, body.splitlines())):
        exec(line, {}, names)
    expected = names["y"].expand(rows, width)
    found = module.made(*narrow.values())
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    gradient = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    expected.backward(gradient)
    found.backward(gradient.float())
    for name, x in wide.items():
        if x.grad is None or not x.grad.any():
            assert narrow[name].grad is None or not narrow[name].grad.any()
        else:
            torch.testing.assert_close(narrow[name].grad.double(), x.grad, atol=tolerance, rtol=tolerance)


@pytest.fixture(params=[16384, 4], ids=["one block", "several blocks"], autouse=True)
def blocks(request, monkeypatch):
    monkeypatch.setattr(rowwise, "LARGEST", request.param)


def whole(*shape, generator, dtype):
    """Small whole numbers, so that there are ties."""
    return torch.randint(-2, 3, shape[0], generator=generator).to(dtype)


@pytest.mark.parametrize(
    "body",
    [
        "m = max(x)\ny = x * m + z",
        "m = max(abs(x))\ny = x * m * m + v * z + r",
        "a = max(x)\nb = sum(z * a)\nm = mean(b * x)\ny = x * m * v + z * r",
    ],
)
def test_maxima_and_their_ties(body):
    """The gradient of a maximum is shared evenly by all that have it, as by torch's amax."""
    agree(body, draw=whole)


@pytest.mark.parametrize(
    "body",
    [
        "y = log(at_least(abs(x), 0.5)) / sqrt(z * z + 1) + exp(-abs(r)) * v",
        "y = (x - z) ** 3 / (1 + x * x) ** 2 + tanh(x * v) * erf(r)",
        "g = 1 + v\ny = x * g + z * r",
        "s = silu(x)\ny = s * s + gelu(z) * v - relu2(x) * r",
        "y = gelu_tanh(x) * sigmoid(z) + fixed(x) * v * r",
        "c = 2 / 3\ny = c * x * (c + v) - z * r ** 2",
        "o = x - x\ny = z * r + v * tanh(o)",
    ],
)
def test_elementwise(body):
    agree(body)


@pytest.mark.parametrize(
    "body",
    [
        "m = mean(x)\nd = x - m\ns = mean(d * d)\nn = d * rsqrt(s + 0.1)\nk = sum(n * z)\ny = n * k * v + r",
        "a = sum(x * r)\nb = mean(x * a + z)\ny = tanh(a + b) * x * v",
        "l = max(x)\np = exp(x - l)\nt = sum(p)\ny = p / t * v + z * log(t) * r",
        "a = mean(r)\nb = mean(2 + 0 * r)\nc = max(r * r)\ny = x * a + b * z * c + v",
        "h = x * sigmoid(z)\ns = sum(h * v)\nt = 1 / (1 + s * s)\nu = sum(h * t * r)\ny = h * t + u",
    ],
)
def test_sums_of_sums(body):
    agree(body)


def made_up(seed):
    """A body of some formulae, each of what came before it."""
    draw = random.Random(seed)
    full, rows, lines = ["x", "z"], ["r"], []

    def term():
        a = draw.choice(full)
        return draw.choice(
            [
                a,
                f"{a} * {draw.choice(full)}",
                f"tanh({a}) * v",
                f"sigmoid({a} * {draw.choice(rows)})",
                f"({a} - {draw.choice(rows)})",
                f"silu({a})",
                f"relu({a}) * (1 + v)",
                f"exp(-{a} * {a})",
            ]
        )

    for i in range(draw.randint(2, 5)):
        if draw.random() < 0.4:
            lines.append(f"s{i} = {draw.choice(('mean', 'mean', 'max'))}({term()} + {term()})")
            lines.append(f"t{i} = tanh(s{i} * {draw.choice(rows)})")
            rows += [f"s{i}", f"t{i}"]
        else:
            lines.append(f"e{i} = {term()} + {draw.choice(('0.5 * ', '', '-'))}{term()}")
            full.append(f"e{i}")
    lines.append(f"y = tanh({full[-1]}) + {term()} * {draw.choice(rows)}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_made_up(seed):
    agree(made_up(seed))


def text_of(name, backward=True):
    made = pair(GROUPS[name])
    return kernel(shared(made.backward if backward else made.forward))


def test_all_sums_of_a_gradient_are_taken_in_one_reading():
    """Sums are linear: what is a number of the row leaves them, and the sum of what is centred is 0."""
    for name in ("rmsnorm", "layernorm", "add_layernorm", "gated_rmsnorm_silu", "softmax", "l2norm"):
        assert text_of(name).count("for start in") == 2, name
    assert text_of("layernorm").count("tl.sum(") == 2 + 2  # over columns, over rows


def test_the_backward_reads_the_sum_and_not_what_it_is_made_of():
    made = pair(GROUPS["add_rmsnorm"])
    assert made.saved == ("weight", "h", "rstd") and made.statistics == ("rstd",)
    assert made.gradients == {"x": "dx", "residual": "dx", "weight": "dweight"}
    assert pair(GROUPS["scaled_add"]).gradients == {"x": "dx", "residual": "dy"}


def test_common_subexpressions_are_computed_once():
    for name in ("silu_glu", "gated_rmsnorm_silu", "clamped_swiglu", "gelu_tanh_glu"):
        body = text_of(name).rpartition("for start in")[2]
        assert body.count("sigmoid(") + body.count("tanh(") == 1, name


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = x + q", "`y = x [+] q`: q is not known"),
        ("y = cosh(x)", "cosh is not known"),
        ("y = x if x else x", "no part of a formula"),
        ("y = 1 + sum(x)", "sum is not known"),
    ],
)
def test_what_is_no_formula(body, message):
    with pytest.raises(ValueError, match=message):
        parse(body, ["x"])


def test_a_cast_that_is_not_stored():
    group = Group("made", "Made up.", (X,), "h = cast(x)\ny = 2 * h", (Output("y"),))
    with pytest.raises(ValueError, match="`h` is cast"):
        pair(group)
