"""Routers against the choice written in torch, in fp64."""

import itertools

import pytest
import torch

from hybridc.codegen.triton.groups import ROUTERS
from tests.codegen.triton.emitted import kernels


def reference(name, logits, bias, k, *, renormalize, eps=0.0, scaling=1.0, groups=1, top_groups=1):
    """Weights and ids by sorting, and by trying out all sets of groups."""
    score = logits.softmax(-1) if name.startswith("softmax") else logits.sigmoid()
    ranked = (score if bias is None else score + bias).detach().clone()
    if top_groups < groups:
        for row in ranked.view(-1, ranked.shape[-1]):
            parts = row.view(groups, -1)
            sums = parts.sort(-1, descending=True).values[:, :2].sum(-1)
            best = max(itertools.combinations(range(groups), top_groups), key=lambda c: sums[list(c)].sum())
            for g in set(range(groups)) - set(best):
                parts[g] = -torch.inf
    ids = ranked.argsort(-1, descending=True)[..., :k]
    weights = score.gather(-1, ids)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    return scaling * weights, ids


def run(name, experts, k, lead=(2, 5), **options):
    generator = torch.Generator().manual_seed(experts + k)
    base = torch.randn(*lead, experts + 3, generator=generator, dtype=torch.float64)
    bias = torch.randn(experts, generator=generator, dtype=torch.float64) if ROUTERS[name].bias else None
    wide = base.clone().requires_grad_()
    narrow = base.float().requires_grad_()
    weights, ids = reference(name, wide[..., 1 : experts + 1], bias, k, **options)
    given = (narrow[..., 1 : experts + 1], *(() if bias is None else (bias.float(),)))
    found, chosen = getattr(kernels(), name)(*given, k, **options)
    assert found.dtype == torch.float32 and chosen.dtype == torch.int64
    assert torch.equal(chosen, ids)
    torch.testing.assert_close(found.double(), weights, atol=1e-6, rtol=1e-5)
    gradient = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
    weights.backward(gradient)
    found.backward(gradient.float())
    torch.testing.assert_close(narrow.grad.double(), wide.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize(("experts", "k"), [(8, 2), (13, 3), (5, 5), (7, 1), (1, 1)])
def test_choice(name, renormalize, experts, k):
    run(name, experts, k, renormalize=renormalize, scaling=2.5)


@pytest.mark.parametrize("name", ROUTERS)
def test_choice_within_groups(name):
    run(name, 12, 3, renormalize=True, eps=1e-3, groups=4, top_groups=2)
    run(name, 15, 2, renormalize=False, groups=5, top_groups=1)


def test_more_rows_than_a_tile():
    run("sigmoid_bias_router", 24, 4, lead=(150,), renormalize=True)


def test_experts_that_can_never_be_chosen():
    """Their bias is -infinity; the choice still has k experts, and no one twice."""
    bias = torch.full((6,), -torch.inf)
    bias[4] = 0.0
    _, ids = kernels().sigmoid_bias_router(torch.randn(3, 6), bias, 3, renormalize=False)
    assert (ids[:, 0] == 4).all() and all(len(set(row)) == 3 for row in ids.tolist())


def test_ids_are_in_range_whatever_the_logits():
    logits = torch.full((2, 5), float("nan"))
    _, ids = kernels().softmax_router(logits, 2, renormalize=True)
    assert ((ids >= 0) & (ids < 5)).all()


def test_no_rows_and_too_many_experts():
    weights, ids = kernels().softmax_router(torch.randn(0, 6), 2, renormalize=True)
    assert weights.shape == ids.shape == (0, 2)
    with pytest.raises(ValueError, match="wider"):
        kernels().softmax_router(torch.randn(1, 4097), 2, renormalize=True)
