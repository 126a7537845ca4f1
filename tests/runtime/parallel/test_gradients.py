"""Gradients after a plain backward on a mesh, against the serial model's; how and when they are sent."""

import pytest
import torch

from hybridc.runtime.errors import UsageError
from hybridc.runtime.parallel import buckets
from tests.equivalence.ranks import on_ranks
from tests.runtime.parallel.models import (
    CASES,
    DENSE,
    DP,
    DP_TP,
    HYBRID,
    gradients,
    label,
    off,
    put,
    ranks,
    rows_of,
    serial,
    tokens,
)


def backward(net, seed, mine=lambda batch, net: batch):
    """One backward of the batch of a seed; the loss."""
    out = net(**mine(tokens(seed=seed), net))
    out.loss.backward()
    return float(out.loss.detach())


def backwards(spec, mesh):
    """On a rank: two backwards that are both summed, then one without, and one that sums both; norms and clipping."""
    net = put(spec, mesh)
    losses, grads = [backward(net, 0, rows_of)], [net.whole_gradients()]
    losses.append(backward(net, 1, rows_of))
    grads.append(net.whole_gradients())
    norm = net.clip_grad_norm_(0.1)
    grads.append(net.whole_gradients())
    net.zero_grad()
    with net.no_sync():
        losses.append(backward(net, 2, rows_of))
    losses.append(backward(net, 3, rows_of))
    grads.append(net.whole_gradients())
    with net.no_sync():
        backward(net, 4, rows_of)
    backward(net, 5, rows_of)
    grads.append(net.whole_gradients())
    return losses, grads, float(norm), float(net.grad_norm())


@pytest.mark.parametrize("spec, mesh", CASES, ids=label)
def test_gradients_are_the_serial_ones(spec, mesh):
    net = serial(spec)
    losses, grads = [backward(net, 0)], [gradients(net)]
    losses.append(backward(net, 1))
    grads.append(gradients(net))
    norm = float(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1))
    grads.append(gradients(net))
    net.zero_grad()
    losses += [backward(net, 2), backward(net, 3)]
    grads.append(gradients(net))
    backward(net, 4), backward(net, 5)
    grads.append(gradients(net))
    last = float(torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9))
    for got in on_ranks(ranks(mesh), backwards, spec, mesh):
        assert got[0] == pytest.approx(losses, rel=1e-6)
        assert [off(g, w) for g, w in zip(got[1], grads, strict=True)] == [{}] * len(grads)
        assert got[2:] == pytest.approx((norm, last), rel=1e-5)


def launches(mesh):
    """On a rank: how many buckets are there, and how many of them were sent while the embedding had no gradient."""
    net = put(DENSE, mesh)
    net.gradients.bucket_bytes = 4096
    sent = []
    net.embed.register_full_backward_pre_hook(lambda *_: sent.append(sum(b.sent is not None for b in made)))
    out = net(**rows_of(tokens(), net))
    made = net.gradients.buckets
    out.loss.backward()
    return len(made), sent[0], net.whole_gradients()


@pytest.mark.parametrize("mesh", [DP[0], DP_TP[0]], ids=label)
def test_buckets_are_sent_while_backward_goes_on(mesh):
    net = serial(DENSE)
    backward(net, 0)
    for count, sent, grads in on_ranks(ranks(mesh), launches, mesh):
        assert count > 5 and sent >= count - 2
        assert off(grads, gradients(net)) == {}


def missing(mesh):
    """On a rank: backwards that reach all layers on rank 0 alone, and no head on any."""
    net = put(DENSE, mesh)
    net.gradients.bucket_bytes = 4096
    found = []
    for _ in range(2):
        x = net.embed(torch.arange(6)[None])
        ctx = type("Ctx", (), {})
        for layer in net.layers[1::2] if net.mesh.dp.rank else ():
            x = layer(x, ctx, {})
        x.sum().backward()
        found.append({n: p.grad for n, p in net.named_parameters()})
        found[-1] = {n: None if g is None else g.clone() for n, g in found[-1].items()}
    return found


def test_a_rank_may_lack_gradients():
    """They count as zeros there; what no rank has stays None."""
    one, other = on_ranks(2, missing, DP[0])
    for first, second in ((one[0], one[1]), (other[0], other[1])):
        assert {n for n, g in first.items() if g is None} == {
            n for n in first if "layers.1" not in n and "embed" not in n
        }
        there = [n for n, g in first.items() if g is not None]
        assert off({n: second[n] for n in there}, {n: 2 * first[n] for n in there}) == {}
    for name, g in one[1].items():
        assert g is None or torch.equal(g, other[1][name])
    assert one[0]["layers.1.mlp.up.weight"].abs().max() > 0


def expected(mesh):
    """On a rank: three backwards of which the last is summed, twice; then one too many."""
    net = put(DENSE, mesh)
    net.gradients.bucket_bytes = 4096
    found = []
    for _ in range(2):
        net.gradients.expect(3)
        sent = []
        for seed in range(3):
            backward(net, seed, rows_of)
            sent.append(sum(b.sent is not None for b in net.gradients.buckets))
        net.gradients.finish()
        found.append((sent, net.whole_gradients()))
    net.gradients.expect(4)  # of which one never comes
    for seed in range(3):
        backward(net, seed, rows_of)
    net.gradients.finish()
    found.append((sent, net.whole_gradients()))
    net.gradients.expect(2)
    backward(net, 0, rows_of)
    backward(net, 1, rows_of)
    with pytest.raises(UsageError, match="after its gradients were summed"):
        backward(net, 1, rows_of)
    net.gradients.finish()
    return found


@pytest.mark.parametrize("mesh", [DP[0], DP_TP[0]], ids=label)
def test_expected_backwards_are_summed_once(mesh):
    net = serial(DENSE)
    for seed in range(3):
        backward(net, seed)
    for got in on_ranks(ranks(mesh), expected, mesh):
        for times, (sent, grads) in enumerate(got, 1):
            assert sent[:2] == [0, 0] and sent[2] > 5
            assert off(grads, {n: times * g for n, g in gradients(net).items()}) == {}


def after_failure(mesh):
    """On a rank: a backward that fails halfway, then one that does not."""
    net = put(DENSE, mesh)

    def fail(_):
        raise RuntimeError("halfway")

    out = net(**rows_of(tokens(), net))
    hook = net.layers[0].register_forward_hook(lambda m, a, y: y.register_hook(fail) and None)
    out = net(**rows_of(tokens(), net))
    with pytest.raises(RuntimeError, match="halfway"):
        out.loss.backward()
    hook.remove()
    net.zero_grad()
    backward(net, 0, rows_of)
    return net.whole_gradients()


def test_a_backward_after_one_that_failed():
    net = serial(DENSE)
    backward(net, 0)
    for mesh in (DP[0], {"tp": 2}):
        for grads in on_ranks(2, after_failure, mesh):
            assert off(grads, gradients(net)) == {}


def frozen(mesh):
    """On a rank: gradients where some parameters are frozen, and after a cast."""
    net = put(DENSE, mesh)
    backward(net, 0, rows_of)
    net.zero_grad()
    net.layers[0].requires_grad_(False)
    backward(net, 0, rows_of)
    found = [net.whole_gradients()]
    net.zero_grad()
    net.layers[0].requires_grad_(True)
    net.double()
    backward(net, 0, rows_of)
    return [*found, net.whole_gradients()]


@pytest.mark.parametrize("mesh", [DP[0], DP_TP[0]], ids=label)
def test_parameters_may_be_frozen_and_cast(mesh):
    net = serial(DENSE)
    net.layers[0].requires_grad_(False)
    backward(net, 0)
    wants = [gradients(net)]
    net.zero_grad()
    net.layers[0].requires_grad_(True)
    net.double()
    backward(net, 0)
    wants.append(gradients(net))
    for got in on_ranks(ranks(mesh), frozen, mesh):
        assert [off(g, w) for g, w in zip(got, wants, strict=True)] == [{}, {}]


def test_buckets_of_one_dtype_in_the_order_of_backward():
    ps = [torch.empty(10), torch.empty(10, dtype=torch.float64), torch.empty(20), torch.empty(5)]
    made = buckets.buckets_of(ps, 100)
    places = {id(p): n for n, p in enumerate(ps)}
    assert [[places[id(p)] for p in b.parameters] for b in made] == [[3, 2], [1], [0]]


def stays(mesh):
    """On a rank: gradients that `torch.autograd.grad` leaves alone."""
    net = put(HYBRID, mesh)
    backward(net, 0, rows_of)
    before = {n: p.grad.clone() for n, p in net.named_parameters()}
    out = net(**rows_of(tokens(seed=1), net))
    torch.autograd.grad(out.loss, list(net.parameters()))
    return all(torch.equal(p.grad, before[n]) for n, p in net.named_parameters())


def test_gradients_by_hand_leave_those_of_parameters():
    assert on_ranks(2, stays, DP[0]) == [True, True]
