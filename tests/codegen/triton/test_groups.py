"""Every generated group: values and gradients against autograd on the same computation in torch, op by op, in fp64."""

import pytest
import torch

from hybridc.codegen.triton.groups import GROUPS
from hybridc.runtime.kernels import rowwise
from tests.codegen.triton.emitted import kernels
from tests.codegen.triton.unfused import CONSTANTS, SEGMENTS, make, unfused


def run(group, given):
    """The kernel's results for inputs by name; of a quantized one what carries its gradient."""
    numbers = {c: CONSTANTS[c] for c in group.constants}
    if group.segmented:
        numbers["segments"] = SEGMENTS
    out = getattr(kernels(), group.name)(*given.values(), **numbers)
    out = out if isinstance(out, tuple) else (out,)
    return (*out[:-1], out[-1].carrier) if group.outputs[-1].form else out


def check(name, lead, width, dtype=torch.float32, tolerance=1e-5, view=lambda x: x):
    """Holds a group against its reference; `view` changes how the inputs lie in memory."""
    group = GROUPS[name]
    reference, form = unfused(name)
    wide, narrow = (make(group, lead, width, d) for d in (torch.float64, dtype))
    expected = reference(*(view(x) if x.dim() > 1 else x for x in wide.values()))
    found = run(group, {n: view(x) if x.dim() > 1 else x for n, x in narrow.items()})
    expected = expected if isinstance(expected, tuple) else (expected,)
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(e.shape, generator=generator, dtype=torch.float64) for e in expected]
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape and a.dtype == dtype
        if not (form and i == len(expected) - 1):
            torch.testing.assert_close(a.double(), b, atol=tolerance, rtol=tolerance)
    torch.autograd.backward(expected, gradients)
    torch.autograd.backward(found, [g.to(dtype) for g in gradients])
    for key, leaf in wide.items():
        if leaf.requires_grad:
            made = narrow[key].grad
            assert made.dtype == dtype and made.shape == leaf.shape
            torch.testing.assert_close(made.double(), leaf.grad, atol=tolerance, rtol=tolerance)
        else:
            assert narrow[key].grad is None


def test_there_are_twenty_groups_and_more_and_each_has_a_reference():
    assert len({g.body for g in GROUPS.values()}) >= 20
    assert all(unfused(name) for name in GROUPS)


@pytest.mark.parametrize("name", GROUPS)
def test_rows_in_one_block(name):
    check(name, (2, 5), 37)


@pytest.mark.parametrize("name", GROUPS)
def test_rows_in_several_blocks(name, monkeypatch):
    monkeypatch.setattr(rowwise, "LARGEST", 16)
    check(name, (3,), 300 if name.endswith("block") else 37)


SOME = ("add_layernorm", "gated_rmsnorm_silu", "gelu_glu", "rope_pairs", "dequantize_row", "layer_scaled_add")


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("width", [1, 2, 64])
def test_widths(name, width):
    check(name, (1,), width)


@pytest.mark.parametrize("name", SOME)
def test_many_rows_in_narrow_tiles(name):
    check(name, (70,), 3)


@pytest.mark.parametrize("name", SOME)
def test_rows_that_lie_in_another_order(name):
    check(name, (3, 4), 9, view=lambda x: x.transpose(0, 1))


@pytest.mark.parametrize("name", SOME)
def test_half_precision(name):
    check(name, (4,), 20, dtype=torch.float16, tolerance=1e-2)


@pytest.mark.parametrize("name", SOME)
def test_no_rows(name):
    group = GROUPS[name]
    given = make(group, (0,), 8, torch.float32)
    out = run(group, given)
    torch.autograd.backward(out, [torch.ones_like(o) for o in out])
    assert all(o.shape[0] == 0 for o in out)
    for item in group.inputs:
        if item.gradient and item.kind == "vector":
            assert not given[item.name].grad.any()


def test_a_gradient_that_nobody_asked_for_and_one_that_is_expanded():
    given = make(GROUPS["add_rmsnorm"], (4,), 8, torch.float32)
    h, _ = kernels().add_rmsnorm(*given.values(), eps=1e-5)
    h.sum().backward()  # y has no gradient, h's has strides of 0
    torch.testing.assert_close(given["residual"].grad, torch.ones(4, 8))
    assert not given["weight"].grad.any()


def test_a_wide_residual_stays_wide():
    """The sum, and its gradient, are in the wider of both dtypes, as torch has it."""
    x, residual = torch.ones(2, 8).half(), torch.full((2, 8), 1e-4)
    x.requires_grad_(), residual.requires_grad_()
    weight = torch.ones(8)
    h, y = kernels().add_rmsnorm(x, residual, weight, eps=1e-5)
    assert h.dtype == y.dtype == torch.float32
    torch.testing.assert_close(h, torch.full((2, 8), 1.0001))
    (h * 1.0001).sum().backward()
    assert x.grad.dtype == torch.float16 and residual.grad.dtype == torch.float32
    torch.testing.assert_close(residual.grad, torch.full((2, 8), 1.0001), atol=1e-7, rtol=0)


def test_what_is_stored_is_what_is_read_on():
    """The norm of a sum is that of the rounded sum."""
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).half()
    residual = torch.full((1, 4), 2.0**-12).half()  # below half a step of every sum
    _, y = kernels().add_plain_rmsnorm(x, residual, eps=0.0)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x.float(), (4,), None, 0.0).half(), rtol=0, atol=0)


def test_nan_goes_through_clamps():
    gate_up = torch.tensor([[float("nan"), 1.0, 1.0, float("nan"), 1.0, 1.0]])
    y = kernels().clamped_swiglu_pairs(gate_up, beta=1.0, limit=2.0, offset=0.0)
    assert y.isnan().tolist() == [[True, True, False]]
    assert kernels().relu(torch.tensor([[float("nan"), -1.0]])).isnan().tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("x", "weight"), [((2, 8), (7,)), ((2, 8), (2, 4)), ((2, 8), (8, 1)), ((2, 7), (8,)), ((3, 8), (8,))]
)
def test_shapes_that_do_not_fit(x, weight):
    with pytest.raises(ValueError, match="needed"):
        kernels().add_rmsnorm(torch.ones(x), torch.ones(2, 8), torch.ones(weight), eps=1e-5)


def test_second_derivatives_are_refused():
    x = torch.ones(2, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(kernels().silu(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_tanh_is_exact_to_rounding():
    """Relative to the result, over all magnitudes."""
    x = torch.cat((torch.logspace(-20, 1, 4000), -torch.logspace(-20, 1, 4000)))[None]
    y = kernels().softcap(x, cap=1.0)
    exact = x.double().tanh()
    assert ((y.double() - exact).abs() / exact.abs()).max() < 4e-7
