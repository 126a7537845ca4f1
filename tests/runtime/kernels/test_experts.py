"""Experts in Triton against `ops.Experts`, and against the definition in float64."""

import pytest
import torch
from torch.nn import functional as F

from hybridc.runtime import gpu, ops
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels import fp8_linear, grouped_gemm
from hybridc.runtime.kernels.experts import Experts
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.ops.bit_linear import BitProduct, token_levels
from hybridc.runtime.quant.linear import FP8Input, FP8Product
from hybridc.runtime.quant.scaling import quantize
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import close, made

DIM, HIDDEN = 12, 8
ROUTES = [(1, 1, 3, 0.0), (1, 2, 4, 0.0), (9, 2, 5, 0.0), (40, 3, 6, 20.0), (140, 2, 3, 0.0)]
"""Tokens, choices, experts, and how much the first expert is favoured; some experts have no token."""
KINDS = {
    "gated": {},
    "plain": {"gated": False, "act": "relu2"},
    "bias": {"bias": True},
    "clamped": {"bias": True, "beta": 1.702, "limit": 0.7, "up_offset": 1.0},
}


def pair(experts, dim=DIM, hidden=HIDDEN, products=(), **options):
    """The same experts in both forms; `products` make the products of each."""

    def each():
        return {"products": tuple(product() if product else None for product in products)} if products else {}

    plain, ours = (kind(experts, dim, hidden, **options, **each()) for kind in (ops.Experts, Experts))
    for n, parameter in enumerate(plain.parameters()):
        parameter.data = made(20 + n, *parameter.shape) * 0.3
    ours.load_state_dict(plain.state_dict())
    return plain, ours


def routed(tokens, k, experts, favour=0.0, dim=DIM):
    logits = made(4, tokens, experts)
    logits[:, 0] += favour
    weights, ids = ops.softmax_topk(logits, k, renormalize=True)
    return made(3, tokens, dim), weights, ids


def found(layer, x, weights, ids, wrap=lambda x: x):
    """The result, and the gradients of x, of the weights of choices, and of all parameters."""
    x, weights = (t.detach().clone().requires_grad_() for t in (x, weights))
    layer.zero_grad()
    y = layer(wrap(x), weights, ids)
    (y * made(9, *y.shape).to(y.dtype)).sum().backward()
    return {"y": y, "x": x.grad, "weights": weights.grad} | {n: p.grad for n, p in layer.named_parameters()}


def same(got, want, tolerance=1e-5):
    """Each to the tolerance times the largest number of what is wanted."""
    assert got.keys() == want.keys()
    for name, value in want.items():
        worst = (got[name].double() - value.double()).abs().max() / value.double().abs().max().clamp(min=1e-9)
        assert worst <= tolerance, (name, worst)


@pytest.mark.parametrize(("route", "kind"), [(r, k) for r in ROUTES for k in KINDS if r[0] < 40 or k == "gated"])
def test_plain(route, kind):
    tokens, k, experts, favour = route
    plain, ours = pair(experts, **KINDS[kind])
    given = routed(tokens, k, experts, favour)
    got = found(ours, *given)
    wide = found(plain.double(), given[0].double(), given[1].double(), given[2])
    same(got, wide)
    idle = [e for e in range(experts) if not (given[2] == e).any()]
    assert not got["down"][idle].any()


def test_definition():
    """As a loop over tokens and choices has it."""
    _, ours = pair(5)
    x, weights, ids = routed(9, 2, 5)
    close(ours(x, weights, ids), ref.experts(x, weights, ids, ours.gate_up, ours.down))
    assert torch.equal(ours(x.view(3, 3, DIM), weights.view(3, 3, 2), ids.view(3, 3, 2)).view(9, DIM),
                       ours(x, weights, ids))  # fmt: skip


@pytest.mark.parametrize("fast", [False, True])
def test_choices_of_no_expert(monkeypatch, fast):
    """They add nothing, with whatever torch's products leave in rows behind the last."""
    if fast:
        monkeypatch.setattr(grouped_gemm, "has_torchs", grouped_gemm.fits_torchs)
        monkeypatch.setattr(F, "grouped_mm", lambda *a, call=F.grouped_mm, **o: poisoned(call(*a, **o), o["offs"]))
    _, ours = pair(4)
    x, weights, ids = routed(9, 2, 4)
    ids[2], ids[5, 1] = -1, -1
    got = found(ours, x, weights, ids)
    # the same with a weight of 0 and some expert
    want = found(ours, x, weights.masked_fill(ids < 0, 0), ids.clamp(min=0))
    want["weights"] = want["weights"].masked_fill(ids < 0, 0)
    same(got, want)
    assert not got["y"][2].any() and not got["x"][2].any()


def poisoned(y, ends):
    if y.ndim == 2:
        y[ends[-1] :] = torch.nan
    return y


def test_no_tokens_and_no_expert():
    _, ours = pair(3)
    empty = ours(made(1, 0, DIM), made(2, 0, 2), torch.zeros(0, 2, dtype=torch.int64))
    assert empty.shape == (0, DIM)
    got = found(ours, made(1, 2, DIM), made(2, 2, 2), torch.full((2, 2), -1))
    assert not any(value.any() for value in got.values())


def test_half_and_autocast():
    _, ours = pair(5)
    x, weights, ids = routed(9, 2, 5)
    want = ref.experts(x, weights, ids, ours.gate_up, ours.down)
    with torch.autocast("cpu", dtype=torch.float16):
        y = ours(x, weights.half(), ids)
    assert y.dtype == torch.float16
    close(y, want, 3e-3)
    y = ours.half()(x.half(), weights.half(), ids)
    assert y.dtype == torch.float16
    close(y, want, 3e-3)


def fp8(name, **options):
    return lambda: FP8Product(name, **options)


RECIPES = [
    ("block128", {}), ("block128", {"scale": "pow2", "bwd": "e5m2"}), ("mx", {}), ("row", {}), ("tensor", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), RECIPES)
@pytest.mark.parametrize(
    ("route", "kind", "dim", "hidden"),
    [(ROUTES[2], "gated", 24, 136), (ROUTES[1], "clamped", 136, 8), (ROUTES[4], "gated", 20, 8)],
)
def test_fp8(route, kind, dim, hidden, name, options):
    """To the order of sums; one number between two of FP8 that this moves to the other may move others by an eighth.

    Such numbers are few, so most are within 1e-5 and all within what they move."""
    tokens, k, experts, favour = route
    if name in ("row", "tensor"):
        dim, hidden = min(dim, 20), min(hidden, 8)
    products = (fp8(name, **options), fp8(name, **options))
    plain, ours = pair(experts, dim, hidden, products, **KINDS[kind])
    given = routed(tokens, k, experts, favour, dim)
    near(found(ours, *given), found(plain, *given))


def near(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        error = (got[name] - value).abs() / value.abs().max().clamp(min=1e-9)
        assert error.max() < 1e-2 and error.median() < 1e-6, (name, error.max(), error.median())


def test_fp8_beside_others():
    """One product in FP8 and the other in full precision."""
    for products in ((fp8("block128"), None), (None, fp8("row"))):
        plain, ours = pair(5, products=products)
        given = routed(9, 2, 5)
        near(found(ours, *given), found(plain, *given))


def test_fp8_inputs():
    """A token that is quantized already, by its first reader or by a kernel."""
    plain, ours = pair(5, 136, 8, (fp8("block128"), fp8("block128")))
    given = routed(9, 2, 5, dim=136)
    want = found(plain, *given)
    for wrap in (FP8Input, gpu.FP8Input):
        near(found(ours, *given, wrap=lambda x, wrap=wrap: wrap(x, "block128")), want)
    recipe = FP8Product("block128").recipe
    near(found(ours, *given, wrap=lambda x: stored_fp8(x, recipe)), want)


def stored_fp8(x, recipe):
    q = quantize(x.detach(), recipe.forward, recipe.activation)
    kept = x.detach().clone()
    return Stored(q.values[:, : x.shape[1]].contiguous(), q.factors, x - kept, lambda: kept)


def gate(rows):
    first, second = rows.chunk(2, -1)
    return F.silu(first) * second


@pytest.mark.parametrize("name", [None, "block128", "row"])
def test_inside(name):
    """A kernel inside that gives a tensor, and one that gives it quantized."""
    products = (fp8(name), fp8(name)) if name else ()
    plain, ours = pair(3, 12, 136 if name == "block128" else 8, products)
    given = routed(9, 2, 3)
    want = found(plain, *given)
    calls = []
    ours.inside = lambda rows: calls.append(rows) or gate(rows)
    near(found(ours, *given), want)
    if name:
        ours.inside = lambda rows: calls.append(rows) or stored_fp8(gate(rows), ours.down_product.recipe)
        near(found(ours, *given), want)
    assert len(calls) == (2 if name else 1)
    assert Experts(2, 4, 4, inside=gate).inside is gate


def test_weights_are_quantized_once_a_step():
    _, ours = pair(2, products=(fp8("block128"), fp8("mx")))
    given = routed(3, 1, 2)
    counts = lambda: [held.quantized for held in ours._held]  # noqa: E731
    for _ in range(3):
        found(ours, *given)
    assert counts() == [1, 1]
    before = ours(*given)
    with torch.no_grad():
        ours.down.mul_(2)
    assert not torch.equal(ours(*given), before) and counts() == [1, 2]
    ours.eval()
    with torch.no_grad():
        assert torch.equal(ours(*given), ours(*given)) and counts() == [1, 2]


def test_inference_as_training():
    """Without gradients rows are padded less; tokens have the same numbers."""
    _, ours = pair(4, 136, 8, products=(fp8("block128"), fp8("mx")))
    given = routed(9, 2, 4, dim=136)
    y = ours(*given)
    with torch.no_grad():
        close(ours.eval()(*given), y.detach().double())


@pytest.mark.parametrize("kind", ["gated", "bias"])
def test_bitnet(kind):
    plain, ours = pair(5, products=(BitProduct, BitProduct), **KINDS[kind])
    given = routed(9, 2, 5)
    want = found(plain, *given)
    same(found(ours, *given), want)
    for wrap in (ops.BitInput, gpu.BitInput):
        same(found(ours, *given, wrap=wrap), want)
    if kind == "gated":

        def inside(rows):
            value = gate(rows)
            levels, scale = token_levels(value.detach())
            return Stored(levels.to(torch.int8), scale, value - value.detach(), value.detach)

        ours.inside = inside
        same(found(ours, *given), want)


def test_what_there_is_not(monkeypatch):
    with pytest.raises(ValueError, match="no recipe delayed: choose tensor, row, block128, mx"):
        Experts(2, 4, 4, products=(fp8("delayed")(), None))
    x, weights, ids = routed(9, 2, 5)
    with pytest.raises(TypeError, match="a product of experts in NoneType with an input of FP8Input"):
        pair(5)[1](FP8Input(x, "row"), weights, ids)
    _, ours = pair(5, products=(fp8("row"), None))
    monkeypatch.setattr(fp8_linear, "capability", lambda device: 80)
    with pytest.raises(UsageError, match=r"experts in FP8 do not run on a device of compute capability 8\.0"):
        ours(x, weights, ids)
