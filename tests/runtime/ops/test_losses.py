"""Losses against closed forms and against transformers."""

import math

import pytest
import torch

from hybridc.runtime.ops.losses import RouterSums, token_cross_entropy
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
    assert RouterSums.of(ours, ours.topk(2).indices).load_balancing_loss().item() == pytest.approx(
        want.item(), rel=1e-5
    )


def test_a_balanced_router_has_loss_k():
    """Uniform probabilities and equal counts: experts x Σ (k / experts) / experts = k."""
    ids = torch.arange(8).view(4, 2) % 4
    assert RouterSums.of(torch.zeros(4, 4), ids).load_balancing_loss().item() == pytest.approx(2.0)


def test_z_loss():
    assert RouterSums.of(torch.zeros(5, 8), torch.zeros(5, 2).long()).z_loss().item() == pytest.approx(math.log(8) ** 2)


@pytest.mark.parametrize("loss", [RouterSums.load_balancing_loss, RouterSums.z_loss])
def test_no_token(loss):
    x = torch.zeros(0, 4, requires_grad=True)
    value = loss(RouterSums.of(x, torch.zeros(0, 2).long()))
    value.backward()
    assert value.item() == 0.0


def test_sums_of_parts_are_those_of_all():
    logits = made(3, 10, 6).requires_grad_()
    ids = logits.topk(2).indices
    whole = RouterSums.of(logits, ids)
    parts = [RouterSums.of(logits[a:b], ids[a:b]).packed() for a, b in ((0, 3), (3, 10))]
    summed = RouterSums.unpacked(parts[0] + parts[1])
    for name in ("load_balancing_loss", "z_loss"):
        want, got = (getattr(s, name)() for s in (whole, summed))
        torch.testing.assert_close(got, want)
        grads = [torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (want, got)]
        torch.testing.assert_close(grads[1], grads[0])
