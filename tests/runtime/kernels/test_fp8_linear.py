"""FP8 linear maps of kernels against the emulation on CPUs, and against the recipes' definitions in float64."""

import copy

import pytest
import torch

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.device import Target, assumed
from hybridc.runtime.kernels.fp8_linear import FP8Input, FP8Linear
from hybridc.runtime.kernels.fp8_quantize import quantize_groups
from hybridc.runtime.kernels.fp8_quantize_wide import quantize_rows
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.quant import linear as emulation
from hybridc.runtime.quant.primary import PrimaryWeights
from tests.runtime.quant import model

CASES = [
    ("tensor", {}),
    ("tensor", {"bwd": "e4m3"}),
    ("delayed", {}),
    ("row", {}),
    ("row", {"fwd": "e5m2"}),
    ("block128", {}),
    ("block128", {"scale": "pow2", "bwd": "e5m2"}),
    ("mx", {}),
]
IDS = ["-".join((name, *options.values())) for name, options in CASES]


def close(ours, theirs):
    """Sums of up to 300 fp32 numbers in another order: each is off by at most 300 · 2⁻²⁴ of the sum of sizes, which is
    some 20 times the result's own size, so 2e-5 of the largest result is ample. A number in FP8 that were rounded
    otherwise would be off by 2⁻⁴ of a term, 100 times as much."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    step = 2e-5 if ours.dtype == torch.float32 else 2**-10  # fp16: one rounding to the other side
    assert not ours.numel() or (ours - theirs).abs().max() <= step * theirs.abs().max()


def pair(ins, out, name, bias=True, **options):
    """A linear map of kernels, and its emulation with the same numbers."""
    torch.manual_seed(0)
    plain = emulation.FP8Linear(ins, out, name, bias=bias, **options)
    ours = FP8Linear(ins, out, name, bias=bias, **options)
    ours.load_state_dict(plain.state_dict())
    return ours, plain


def run(linear, x, dy, wrap=lambda x: x):
    """y and all gradients."""
    x = x.clone().requires_grad_()
    y = linear(wrap(x))
    y.backward(dy)
    grads = [x.grad, *(p.grad for p in linear.parameters())]
    linear.zero_grad()
    return [y.detach(), *grads]


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
@pytest.mark.parametrize(("tokens", "ins", "out"), [(1, 128, 32), (3, 40, 16), (130, 150, 136)])
def test_as_emulated(name, options, tokens, ins, out):
    ours, plain = pair(ins, out, name, **options)
    x, dy = torch.randn(tokens, ins), torch.randn(tokens, out)
    found, wanted = run(ours, x, dy), run(plain, x, dy)
    for a, b in zip(found, wanted, strict=True):
        close(a, b)


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[0] != "delayed"])
def test_as_defined(name, options):
    """The model in float64 was written from the formats' definitions."""
    ours, _ = pair(70, 40, name, **options)
    x, dy = torch.randn(33, 70), torch.randn(33, 40)
    y, dx, dw, db = run(ours, x, dy)
    given = {k: v for k, v in options.items() if k != "scale"}
    wanted = model.products(x, ours.weight.detach(), dy, name, power=True if "scale" in options else None, **given)
    for a, b in zip((y - ours.bias.detach(), dx, dw), wanted, strict=True):
        close(a, b.float())
    close(db, dy.double().sum(0).float())


@pytest.mark.parametrize("name", model.RECIPES)
def test_more_dimensions_other_dtypes_and_strides(name):
    ours, plain = pair(48, 24, name)
    x, dy = torch.randn(48, 5, 2).half().permute(2, 1, 0), torch.randn(1, 1, 24).half().expand(2, 5, 24)
    for a, b in zip(run(ours, x, dy), run(plain, x, dy), strict=True):
        close(a, b)
    x = torch.randn(6, 48)
    with torch.autocast("cpu", torch.float16):
        found, wanted = ours(x), plain(x)
    assert found.dtype == wanted.dtype == torch.float16
    close(found.detach(), wanted.detach())


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_no_tokens(name, options):
    ours, plain = pair(32, 16, name, **options)
    x, dy = torch.ones(0, 32), torch.ones(0, 16)
    for a, b in zip(run(ours, x, dy), run(plain, x, dy), strict=True):
        assert a.shape == b.shape and not a.any()


def test_histories_are_equal():
    """Over steps with numbers of other sizes, zeros first, and in evaluation."""
    ours, plain = pair(24, 16, "delayed")
    g = torch.Generator().manual_seed(1)
    sizes = [0.0, 1.0, 40.0, 0.01, *[0.0] * 17, 3.0]
    for step, size in enumerate(sizes):
        x, dy = torch.randn(5, 24, generator=g) * size, torch.randn(5, 16, generator=g) * size
        for a, b in zip(run(ours, x, dy), run(plain, x, dy), strict=True):
            close(a, b)
        for linear in (ours, plain):
            linear.train(step != 2)
            with torch.no_grad():
                linear.weight.mul_(1.5)
        assert torch.equal(ours.product.amax, plain.product.amax)
    assert ours.product.amax.any(1).all()


def test_a_shared_input_is_quantized_once(monkeypatch):
    from hybridc.runtime.kernels import fp8_linear

    made, real = [], fp8_linear.quantize_both_ways
    monkeypatch.setattr(fp8_linear, "quantize_both_ways", lambda x, *a, **k: made.append(x.shape) or real(x, *a, **k))
    (one, one_plain), (two, two_plain) = (pair(40, n, "block128") for n in (16, 24))
    x = torch.randn(4, 40)
    results = []
    for kind, a, b in ((FP8Input, one, two), (emulation.FP8Input, one_plain, two_plain)):
        leaf = x.clone().requires_grad_()
        shared = kind(leaf, "block128")
        loss = a(shared).square().sum() + b(shared).square().sum()
        loss.backward()
        results.append((loss.detach(), leaf.grad, a.weight.grad, b.weight.grad))
    for a, b in zip(*results, strict=True):
        close(a, b)
    assert made.count((4, 40)) == 1
    shared = FP8Input(x, "block128")
    with torch.no_grad():
        one(shared)
    assert shared.operand(turned=False).turned is None  # nothing is made for gradients that nobody wants


@pytest.mark.parametrize(("name", "quantized"), [("block128", quantize_groups), ("row", quantize_rows)])
def test_a_stored_input(name, quantized):
    """Its data go into the product, its gradient to the carrier, and the weight's gradient is of the value."""
    ours, plain = pair(150, 32, name)
    x, dy = torch.randn(2, 9, 150), torch.randn(2, 9, 32)
    asked = []
    data, scale = quantized(x)
    carrier = torch.zeros_like(x).requires_grad_()
    stored = Stored(data, scale, carrier, lambda: asked.append(1) or x)
    y = ours(stored)
    assert not asked
    y.backward(dy)
    found = [y.detach(), carrier.grad, ours.weight.grad, ours.bias.grad]
    for a, b in zip(found, run(plain, x, dy), strict=True):
        close(a, b)
    assert asked == [1]
    ours.requires_grad_(False)
    ours(stored).backward(dy)
    assert asked == [1]  # no weight has a gradient


@pytest.mark.parametrize("name", ["tensor", "delayed", "row", "block128", "mx"])
def test_weights_are_quantized_once_a_step(name):
    ours, _ = pair(32, 16, name)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
    for step in range(3):
        for _ in range(3):
            ours(torch.randn(2, 32)).sum().backward()
        assert ours.product.quantized == step + 1
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("name", ["row", "block128", "mx"])
def test_weights_without_gradients_have_one_layout(name):
    ours, plain = pair(32, 48, name)
    ours.eval()
    x, dy = torch.randn(2, 32), torch.randn(2, 48)
    with torch.no_grad():
        close(ours(x), plain(x))
        assert ours.product.weight(ours.weight, 0, None).encoded.turned is None
    for a, b in zip(run(ours, x, dy), run(plain, x, dy), strict=True):
        close(a, b)


@pytest.mark.parametrize("name", ["tensor", "delayed", "row", "block128", "mx"])
def test_weights_stored_in_fp8(name):
    """Stored by kernels as by the emulation, bit for bit, and trained alike."""
    ours, plain = pair(70, 130, name)
    made = [(linear, PrimaryWeights(linear)) for linear in (ours, plain)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for _, m in made]
    for _ in range(2):
        state, other = ours.state_dict(), plain.state_dict()
        assert list(state) == list(other) and state["weight"].dtype == torch.float8_e4m3fn
        x, dy = torch.randn(4, 70), torch.randn(4, 130)
        for linear, _ in made:
            assert torch.equal(linear.weight_scale, plain.weight_scale)
        assert torch.equal(state["weight"].float(), other["weight"].float())
        for linear, _ in made:
            linear.y = linear(x).detach()
            (linear(x) * dy).sum().backward()
        close(ours.y, plain.y)
        close(ours.weight.grad, plain.weight.grad)
        plain.weight.grad.copy_(ours.weight.grad)  # so that no order of sums tells them apart later
        plain.bias.grad.copy_(ours.bias.grad)
        for (_, masters), optimizer in zip(made, optimizers, strict=True):
            masters.step(optimizer)
            optimizer.zero_grad()


def test_old_devices_are_refused():
    linear = FP8Linear(16, 16, "row").to("meta")
    with assumed(Target(80, 108)), pytest.raises(UsageError, match=r"compute capability 8\.0"):
        linear(torch.ones(2, 16, device="meta"))


def test_a_copy_forgets_what_was_quantized():
    ours, _ = pair(16, 16, "row", bias=False)
    x = torch.randn(3, 16)
    ours(x)
    other = copy.deepcopy(ours)
    with torch.no_grad():
        other.weight.zero_()
    assert not other(x).any() and ours(x).any()
