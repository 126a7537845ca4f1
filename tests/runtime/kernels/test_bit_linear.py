"""BitNet's projections by kernels against the CPU's forms, whose formulas are tested against float64."""

import copy

import pytest
import torch

from hybridc.runtime import ops
from hybridc.runtime.kernels.bit_linear import BitInput, BitLinear, BitProduct, PackedBitLinear, levels_of
from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.ops.bit_linear import token_levels
from tests.runtime.ops.cases import close, made

CASES = [(40, 24, ()), (70, 133, (100, 20, 13))]


def pair(kind, ins, out, parts, seed=0):
    """The same layer in both forms: the CPU's, and that of kernels with the first one's state dict."""
    forms = (getattr(ops, kind), {"BitLinear": BitLinear, "PackedBitLinear": PackedBitLinear}[kind])
    layers = [form(ins, out, bias=True, parts=parts) for form in forms]
    with torch.no_grad():
        for n, p in enumerate(layers[0].parameters()):
            if p.dtype == torch.uint8:
                generator = torch.Generator().manual_seed(seed)
                codes = torch.randint(0, 3, (4, *p.shape), dtype=torch.uint8, generator=generator)
                p.copy_(codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6)
            else:
                p.copy_(made(seed + n, *p.shape) * torch.linspace(0.1, 5, p.shape[0]).view(-1, *[1] * (p.dim() - 1)))
    layers[1].load_state_dict(layers[0].state_dict())
    return layers


def stored(x):
    """What a generated kernel hands over: x in 8 bits, and zeros that stand for it in autograd."""
    levels, scale = token_levels(x)
    carrier = torch.zeros_like(x, requires_grad=True)
    return Stored(levels.to(torch.int8), scale, carrier, lambda: x)


INPUTS = {
    "tensor": lambda x: x.clone().requires_grad_(),
    "shared": lambda x: BitInput(x.clone().requires_grad_()),
    "stored": stored,
}


@pytest.mark.parametrize("kind", ["BitLinear", "PackedBitLinear"])
@pytest.mark.parametrize("input", INPUTS)
@pytest.mark.parametrize(("ins", "out", "parts"), CASES)
def test_the_forms_agree(kind, input, ins, out, parts):
    theirs, ours = pair(kind, ins, out, parts)
    x, grad = made(3, 2, 9, ins), made(4, 2, 9, out)
    wanted_x, given = x.clone().requires_grad_(), INPUTS[input](x)
    wanted, y = theirs(wanted_x), ours(given)
    wanted.backward(grad)
    y.backward(grad)
    close(y.detach(), wanted.detach().double())
    close((given if input == "tensor" else given.carrier).grad, wanted_x.grad.double())
    for got, want in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (got.grad is None) == (want.grad is None)
        if got.grad is not None:
            close(got.grad, want.grad.double())


def test_an_input_is_quantized_once():
    x = BitInput(made(0, 3, 40))
    assert levels_of(x) is levels_of(x)
    (_, first), (_, second) = pair("BitLinear", 40, 8, ()), pair("BitLinear", 40, 12, (), seed=5)
    close(first(x).detach(), ops.BitLinear.forward(first, x.carrier).detach().double())
    close(second(x).detach(), ops.BitLinear.forward(second, x.carrier).detach().double())


def test_a_weight_is_packed_once_a_step():
    _, layer = pair("BitLinear", 40, 24, ())
    optimizer = torch.optim.SGD(layer.parameters(), lr=10.0)
    for step in range(3):
        for n in range(2):
            layer(made(n, 3, 40)).square().sum().backward()
        assert layer.packed.made == step + 1
        close(layer(made(7, 3, 40)).detach(), ops.BitLinear.forward(layer, made(7, 3, 40)).detach().double())
        optimizer.step()
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight.zero_()
    assert torch.equal(other(made(0, 3, 40)), other.bias.expand(3, -1))
    assert not torch.equal(layer(made(0, 3, 40)), layer.bias.expand(3, -1))


def test_packed_weights_that_are_loaded_again():
    theirs, ours = pair("PackedBitLinear", 40, 24, (20, 4))
    x = made(3, 5, 40)
    ours(x)
    again, _ = pair("PackedBitLinear", 40, 24, (20, 4), seed=9)
    ours.load_state_dict(again.state_dict())
    close(ours(x).detach(), again(x).detach().double())
    with torch.no_grad():
        ours.weight_scale.mul_(2)
        ours.bias.zero_()
        again.bias.zero_()
    close(ours(x).detach(), 2 * again(x).detach().double())
    assert theirs.weight.dtype == ours.weight.dtype == torch.uint8


def test_weights_of_others():
    weights = made(1, 3, 12, 40).requires_grad_()
    again = weights.detach().clone().requires_grad_()
    ours, theirs = BitProduct(), ops.BitProduct()
    x = made(2, 6, 40)
    for round in range(2):
        for n, (w, v) in enumerate(zip(weights.unbind(), again.unbind(), strict=True)):
            y, wanted = ours(x, w, index=n), theirs(x, v, index=n)
            close(y.detach(), wanted.detach().double())
            (y.square().sum() + wanted.square().sum()).backward()
        assert ours.packed.made == 3, round
    close(weights.grad, again.grad.double())


def test_half_precision_and_no_tokens():
    theirs, ours = pair("BitLinear", 40, 24, ())
    x = made(0, 3, 40).half()
    y = ours.half()(x)
    assert y.dtype == torch.float16
    close(y.detach().float(), theirs.half().float()(x.float()).detach().double(), 1e-3)
    assert ours(x[:0]).shape == (0, 24)
    with torch.autocast("cpu", torch.float16):
        assert ours.float()(x.float()).dtype == torch.float16
