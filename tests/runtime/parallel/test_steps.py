"""Steps over micro-batches: loss and gradients are the serial model's over the same tokens."""

import pytest
import torch

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


def result(made, net_gradients):
    """A step's result as numbers, and gradients."""
    aux = {name: value if name == "tokens_per_expert" else float(value) for name, value in made.aux.items()}
    counts = [c.tolist() for c in aux.pop("tokens_per_expert", [])]
    return float(made.loss), float(made.ce_loss), made.targets, aux, counts, net_gradients


def equal(got, want):
    """Whether two results are the same, to rounding."""
    close = got[0] == pytest.approx(want[0], rel=1e-6) and got[1] == pytest.approx(want[1], rel=1e-6)
    assert close and got[2] == want[2] and got[3] == pytest.approx(want[3], rel=1e-5) and got[4] == want[4]
    assert off(got[5], want[5]) == {}


def stepped(spec, mesh, batches):
    """On a rank: a step on its rows of the batches, or on those that are its own."""
    net = put(spec, mesh)
    mine = batches[net.mesh.dp.rank] if isinstance(batches, dict) else [rows_of(batch, net) for batch in batches]
    return result(net.step(mine), net.whole_gradients())


def once(spec, batches):
    """The serial step."""
    net = serial(spec)
    return result(net.step(batches), gradients(net))


@pytest.mark.parametrize("spec, mesh", CASES, ids=label)
def test_a_step_is_the_serial_one(spec, mesh):
    batches = [tokens(seed=0), tokens(length=7, seed=1), tokens(rows=2, seed=2)]
    batches[1] = {**batches[1], "attention_mask": torch.ones(4, 7).tril(3).long()}
    want = once(spec, batches)
    for got in on_ranks(ranks(mesh), stepped, spec, mesh, batches):
        equal(got, want)


def test_a_serial_step_is_the_mean_over_all_targets():
    batches = [tokens(length=9, seed=0), tokens(length=9, rows=1, seed=1)]
    net = serial(DENSE)
    got = result(net.step(batches), gradients(net))
    net.zero_grad()
    out = net(**{name: torch.cat([b[name] for b in batches]) for name in batches[0]})
    out.loss.backward()
    equal(got, (float(out.loss.detach()), float(out.ce_loss.detach()), int(out.targets), {}, [], gradients(net)))


def apart(kind):
    """Micro-batches of two dp ranks that are not alike, and the serial ones that they amount to."""
    a, b, c = tokens(rows=2, seed=0), tokens(rows=1, seed=1), tokens(rows=3, seed=2)
    nothing = {**b, "labels": torch.full_like(b["labels"], -100)}

    def joined(*parts):
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    if kind == "fewer":
        return {0: [a, c], 1: [b]}, [joined(a, b), c]
    if kind == "none":
        return {0: [a, c], 1: []}, [a, c]
    if kind == "no targets":
        return {0: [a, c], 1: [nothing, nothing]}, [joined(a, nothing), joined(c, nothing)]
    return {0: [nothing], 1: [nothing]}, [joined(nothing, nothing)]


@pytest.mark.parametrize("kind", ["fewer", "none", "no targets", "no targets at all"])
@pytest.mark.parametrize(
    "spec, mesh", [(HYBRID, DP[0]), (HYBRID, DP[1]), (DENSE, DP_TP[0]), (DENSE, DP_TP[1])], ids=label
)
def test_ranks_without_data_take_part(spec, mesh, kind):
    batches, whole = apart(kind)
    want = once(spec, whole)
    for got in on_ranks(ranks(mesh), stepped, spec, mesh, batches):
        equal(got, want)
