"""Losses against closed forms and against transformers."""

import math

import pytest
import torch

from hybridc.runtime.ops.losses import load_balancing_loss, router_z_loss, token_cross_entropy
from tests.runtime.ops.cases import made


def test_cross_entropy():
    logits = made(1, 6, 9)
    targets = torch.tensor([3, -100, 0, 8, -100, 2])
    want = -sum(logits[t].double().log_softmax(-1)[targets[t]] for t in (0, 2, 3, 5)) / 4
    assert token_cross_entropy(logits, targets).item() == pytest.approx(want.item(), abs=1e-6)
    assert token_cross_entropy(torch.zeros(2, 7), torch.tensor([1, 2])).item() == pytest.approx(math.log(7))
    half = token_cross_entropy(logits.to(torch.bfloat16), targets)
    assert half.dtype == torch.float32


def test_no_target():
    logits = made(1, 3, 5).requires_grad_()
    loss = token_cross_entropy(logits, torch.full((3,), -100))
    loss.backward()
    assert loss.item() == 0.0 and not logits.grad.any()


def test_load_balancing_is_that_of_transformers():
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    layers = [made(n, 30, 6) for n in range(3)]
    ours = torch.cat(layers)
    want = load_balancing_loss_func(tuple(layers), 6, top_k=2)
    assert load_balancing_loss(ours, ours.topk(2).indices).item() == pytest.approx(want.item(), rel=1e-5)


def test_a_balanced_router_has_loss_k():
    """Uniform probabilities and equal counts: experts x Σ (k / experts) / experts = k."""
    ids = torch.arange(8).view(4, 2) % 4
    assert load_balancing_loss(torch.zeros(4, 4), ids).item() == pytest.approx(2.0)


def test_z_loss():
    assert router_z_loss(torch.zeros(5, 8)).item() == pytest.approx(math.log(8) ** 2)


@pytest.mark.parametrize("loss", [lambda x: load_balancing_loss(x, x.new_zeros(0, 2).long()), router_z_loss])
def test_no_token(loss):
    x = torch.zeros(0, 4, requires_grad=True)
    value = loss(x)
    value.backward()
    assert value.item() == 0.0
