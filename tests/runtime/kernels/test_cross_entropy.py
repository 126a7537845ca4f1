"""The fused head and cross entropy against sums of exponentials in float64."""

import math

import pytest
import torch

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.cross_entropy import (
    WORDS,
    linear_cross_entropy,
    linear_cross_entropy_reference,
    linear_token_losses,
)
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops.cases import close, made

HEADS = {
    "plain": {},
    "scaled": dict(scale=0.25),
    "capped": dict(softcap=3.0),
    "scaled and capped": dict(scale=-2.0, softcap=1.5),
}
heads = pytest.mark.parametrize("head", HEADS)


def expected(x, weight, targets, bias=None, scale=1.0, softcap=None):
    """Losses of the tokens in float64, word by word."""
    losses = []
    for t, target in enumerate(targets.tolist()):
        logits = scale * (weight.double() @ x[t].double() + (0 if bias is None else bias.double()))
        if softcap is not None:
            logits = softcap * torch.tanh(logits / softcap)
        losses.append(torch.exp(logits).sum().log() - logits[target] if target != -100 else 0 * logits[0])
    return torch.stack(losses)


def mean(losses, targets):
    return losses.sum() / max(1, int((targets != -100).sum()))


def case(tokens, vocab, dim):
    targets = torch.randint(vocab, (tokens,), generator=torch.Generator().manual_seed(5))
    targets[1::4] = -100
    return made(1, tokens, dim), made(2, vocab, dim), targets, made(3, vocab)


@heads
@pytest.mark.parametrize("with_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize(
    ("tokens", "vocab", "dim"), [(1, 7, 3), (7, 33, 16), (70, 150, 40)], ids=["one tile", "tails", "many tiles"]
)
def test_loss_and_gradients(tokens, vocab, dim, with_bias, head):
    x, weight, targets, bias = case(tokens, vocab, dim)
    x = x / 4
    given = [x, weight, bias] if with_bias else [x, weight]

    def run(function, inputs):
        inputs = [i.clone().requires_grad_() for i in inputs]
        loss = function(inputs[0], inputs[1], *inputs[2:])
        return loss.detach(), torch.autograd.grad(3 * loss, inputs)

    loss, grads = run(lambda x, w, b=None: linear_cross_entropy(x, w, targets, b, **HEADS[head]), given)
    want, right = run(
        lambda x, w, b=None: mean(expected(x, w, targets, b, **HEADS[head]), targets), [i.double() for i in given]
    )
    assert loss.dtype == torch.float32 and loss.shape == ()
    close(loss, want, 1e-6)
    for ours, theirs in zip(grads, right, strict=True):
        assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max() + 1e-9


def test_a_vocabulary_of_several_chunks():
    """More words than the backward makes logits of at a time, and ranges in the forward that end in a tail."""
    x, weight, targets, _ = case(5, WORDS + 70, 4)
    targets[0], targets[2] = WORDS + 69, WORDS
    inputs = [x.requires_grad_(), weight.requires_grad_()]
    grads = torch.autograd.grad(linear_cross_entropy(*inputs, targets), inputs)
    doubles = [i.detach().double().requires_grad_() for i in inputs]
    for ours, theirs in zip(
        grads, torch.autograd.grad(mean(expected(*doubles, targets), targets), doubles), strict=True
    ):
        assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max()


def test_losses_of_tokens():
    """Their gradients may differ from token to token."""
    x, weight, targets, _ = case(9, 20, 6)
    x, targets = x.view(3, 3, 6).requires_grad_(), targets.view(3, 3)
    losses = linear_token_losses(x, weight, targets)
    want = expected(x.detach().view(9, 6), weight, targets.view(9)).view(3, 3)
    close(losses.detach(), want, 1e-6)
    assert not losses[targets == -100].any()
    amounts = made(7, 3, 3)
    (grad,) = torch.autograd.grad((losses * amounts).sum(), x)
    double = x.detach().double().requires_grad_()
    (right,) = torch.autograd.grad(
        (expected(double.view(9, 6), weight, targets.view(9)) * amounts.view(9)).sum(), double
    )
    close(grad, right, 1e-6)


def test_only_the_gradients_that_are_wanted():
    x, weight, targets, bias = case(5, 20, 6)
    linear_cross_entropy(x.requires_grad_(), weight, targets, bias).backward()
    assert x.grad is not None and weight.grad is None and bias.grad is None


def test_tensors_that_are_not_contiguous():
    x, weight, targets, bias = case(7, 33, 16)
    wide = torch.stack((x, x), 1)
    given = (
        wide[:, 0],
        weight.t().contiguous().t(),
        torch.stack((targets, targets), 1)[:, 1],
        torch.stack((bias, bias), 1)[:, 0],
    )
    assert not any(t.is_contiguous() for t in given)
    close(linear_cross_entropy(*given), mean(expected(x, weight, targets, bias), targets), 1e-6)


def test_half_precision():
    x, weight, targets, _ = case(7, 33, 16)
    x, weight = (x / 4).half().requires_grad_(), weight.half().requires_grad_()
    loss = linear_cross_entropy(x, weight, targets)
    assert loss.dtype == torch.float32
    double = [t.detach().double().requires_grad_() for t in (x, weight)]
    want = mean(expected(*double, targets), targets)
    close(loss.detach(), want.detach(), 1e-6)
    for ours, theirs in zip(torch.autograd.grad(loss, (x, weight)), torch.autograd.grad(want, double), strict=True):
        assert ours.dtype == torch.float16
        close(ours, theirs, 1e-3)


def test_large_logits():
    """What overflows every exponential: the loss is the gap to the greatest logit."""
    x, weight = torch.tensor([[1000.0], [1000.0]]), torch.tensor([[0.0], [1.0], [-1.0]])
    assert linear_token_losses(x, weight, torch.tensor([1, 2])).tolist() == [0.0, 2000.0]
    assert linear_cross_entropy(torch.zeros(2, 4), torch.ones(7, 4), torch.tensor([1, 6])).item() == pytest.approx(
        math.log(7)
    )


@pytest.mark.parametrize("tokens", [0, 3])
def test_no_target(tokens):
    x, weight = made(1, tokens, 5).requires_grad_(), made(2, 9, 5).requires_grad_()
    loss = linear_cross_entropy(x, weight, torch.full((tokens,), -100))
    loss.backward()
    assert loss.item() == 0.0 and not x.grad.any() and not weight.grad.any()


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_does_not_vanish(number):
    weight = made(2, 40, 5)
    weight[30] = number
    assert linear_cross_entropy(torch.ones(2, 5), weight, torch.tensor([3, 4])).isnan()


@pytest.mark.parametrize("target", [9, -1])
def test_a_target_outside_of_the_vocabulary(target):
    assert linear_cross_entropy(made(1, 2, 5), made(2, 9, 5), torch.tensor([3, target])).isnan()


@heads
def test_the_reference_computes_the_same(head):
    x, weight, targets, bias = case(7, 33, 16)
    got = linear_cross_entropy_reference(x, weight, targets, bias, **HEADS[head])
    close(got, mean(expected(x, weight, targets, bias, **HEADS[head]), targets), 2e-6)


def test_what_does_not_fit():
    x, weight, targets, bias = case(5, 9, 4)
    with pytest.raises(UsageError, match="fp64"):
        linear_cross_entropy(x.double(), weight.double(), targets)
    with pytest.raises(UsageError, match="cast one"):
        linear_cross_entropy(x, weight.half(), targets)
    with pytest.raises(UsageError, match="cast one"):
        linear_cross_entropy(x, weight, targets, bias.half())
    with pytest.raises(UsageError, match="dim"):
        linear_cross_entropy(x, weight[:, :3], targets)
    with pytest.raises(UsageError, match="dim"):
        linear_cross_entropy(x, weight, targets[1:])


def test_compiled_kernels_fit():
    check_fits("hybridc.runtime.kernels.cross_entropy")
