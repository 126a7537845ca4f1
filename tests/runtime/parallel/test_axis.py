"""Moves over an axis against what they stand for, with tokens that ranks do not divide: values, and gradients that are
zero where a part was filled up."""

import pytest
import torch
from torch import distributed

from hybridc.runtime.parallel.axis import Axis
from tests.equivalence.ranks import on_ranks

RANKS, LENGTH, DIM = 3, 7, 6


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def axis():
    return Axis("tp", RANKS, distributed.get_rank(), distributed.group.WORLD)


def whole(rows):
    """What ranks' parts of tokens are together, and what is behind the last token."""
    together = torch.cat(rows, 1)
    return together[:, :LENGTH], together[:, LENGTH:]


def moved():
    """Every move of this rank, with the gradient that comes back for weights that depend on the rank."""
    tp, rank = axis(), distributed.get_rank()
    tokens = tp.tokens(LENGTH)
    x = numbers(0, 2, LENGTH, DIM)
    own = numbers(1 + rank, 2, LENGTH, DIM)  # a part of a sum
    part = tokens.slice(x)
    moves = {
        "all_gather": (part, tokens.all_gather),
        "all_gather_slice": (part, lambda t: tokens.all_gather(t, back="slice")),
        "reduce_scatter": (own, tokens.reduce_scatter),
        "all_reduce": (own, tokens.all_reduce),
        "all_reduce_twice": (own, lambda t: tokens.all_reduce(t, back="all_reduce")),
        "slice": (x, tokens.slice),
        "slice_pad": (x, lambda t: tokens.slice(t, back="pad")),
        "copy": (x, tokens.copy),
        "copy_share": (x, lambda t: tokens.copy(t, back="share")),
        "all_to_all": (part, lambda t: tokens.all_to_all(t, dim=1, into=2)),
    }
    out = {}
    for n, (name, (given, move)) in enumerate(moves.items()):
        leaf = given.detach().requires_grad_()
        result = move(leaf)
        weights = numbers(100 + 10 * n + rank, *result.shape)
        if name in (
            "all_gather_slice",
            "all_reduce",
            "copy_share",
        ):  # whole values, with the same gradient on all ranks
            weights = numbers(100 + 10 * n, *result.shape)
        if result.shape[1] == 3:  # nothing reads what tokens were filled up with
            weights[:, max(0, LENGTH - 3 * rank) :] = 0
        (result * weights).sum().backward()
        out[name] = (result.detach(), leaf.grad, weights)
    return out


@pytest.fixture(scope="module")
def ranks():
    return on_ranks(RANKS, moved)


def values(ranks, name, which):
    return [rank[name][which] for rank in ranks]


def test_parts_of_tokens_come_together(ranks):
    x = numbers(0, 2, LENGTH, DIM)
    for name in ("all_gather", "all_gather_slice"):
        assert all(torch.equal(v, x) for v in values(ranks, name, 0))
    summed, behind = whole(values(ranks, "all_gather", 1))
    torch.testing.assert_close(summed, sum(values(ranks, "all_gather", 2)))
    assert behind.shape[1] == 2 and not behind.any()
    cut, behind = whole(values(ranks, "all_gather_slice", 1))
    torch.testing.assert_close(cut, values(ranks, "all_gather_slice", 2)[0])
    assert not behind.any()


def test_sums(ranks):
    total = sum(numbers(1 + r, 2, LENGTH, DIM) for r in range(RANKS))
    for name in ("all_reduce", "all_reduce_twice"):
        for value in values(ranks, name, 0):
            torch.testing.assert_close(value, total)
    for gradient, weights in zip(values(ranks, "all_reduce", 1), values(ranks, "all_reduce", 2), strict=True):
        assert torch.equal(gradient, weights)
    for gradient in values(ranks, "all_reduce_twice", 1):
        torch.testing.assert_close(gradient, sum(values(ranks, "all_reduce_twice", 2)))
    scattered, _ = whole(values(ranks, "reduce_scatter", 0))
    torch.testing.assert_close(scattered, total)
    weights, _ = whole(values(ranks, "reduce_scatter", 2))
    assert all(torch.equal(g, weights) for g in values(ranks, "reduce_scatter", 1))


def test_slices_and_copies(ranks):
    x = numbers(0, 2, LENGTH, DIM)
    for name in ("slice", "slice_pad"):
        real, behind = whole(values(ranks, name, 0))
        assert torch.equal(real, x) and torch.equal(behind, x[:, -1:].expand_as(behind))
    weights, _ = whole(values(ranks, "slice", 2))
    assert all(torch.equal(g, weights) for g in values(ranks, "slice", 1))
    weights, _ = whole(values(ranks, "slice_pad", 2))
    assert torch.equal(sum(values(ranks, "slice_pad", 1)), weights)
    for gradient in values(ranks, "copy", 1):
        torch.testing.assert_close(gradient, sum(values(ranks, "copy", 2)))
    torch.testing.assert_close(sum(values(ranks, "copy_share", 1)), values(ranks, "copy_share", 2)[0])


def test_tokens_to_channels(ranks):
    x = numbers(0, 2, LENGTH, DIM)
    assert torch.equal(torch.cat(values(ranks, "all_to_all", 0), 2), x)
    gradient, behind = whole(values(ranks, "all_to_all", 1))
    assert torch.equal(gradient, torch.cat(values(ranks, "all_to_all", 2), 2)) and not behind.any()
