"""Whole state dicts: out of any mesh and into any other; parameters that start the same on all of them."""

import pytest
import torch
from torch import distributed

import hybridc
from hybridc.runtime.errors import UsageError
from tests.equivalence.ranks import on_ranks
from tests.runtime.parallel.models import (
    CASES,
    COPIES,
    DENSE,
    DP,
    DP_TP,
    HYBRID,
    device_mesh,
    label,
    off,
    put,
    ranks,
    rows_of,
    serial,
    tokens,
)


def same(got, want):
    """Whether state dicts have the same names, in one order, and bits."""
    return list(got) == list(want) and all(torch.equal(got[n], t) for n, t in want.items())


def states(spec, mesh, other):
    """On a rank: the state dict after init, and after loading another and one step of an optimizer."""
    net = put(spec, mesh)
    found = [net.whole_state_dict()]
    net.load_whole_state_dict(other)
    found.append(net.whole_state_dict())
    net.step([rows_of(tokens(), net)])
    net.clip_grad_norm_(1.0)
    torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9).step()
    return [*found, net.whole_state_dict()]


@pytest.mark.parametrize("spec, mesh", CASES, ids=label)
def test_state_dicts_are_the_serial_ones(spec, mesh):
    other = serial(spec, seed=1)
    before = {n: t.clone() for n, t in other.state_dict().items()}
    other.step([tokens()])
    torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
    torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9).step()
    for got in on_ranks(ranks(mesh), states, spec, mesh, before):
        assert same(got[0], serial(spec).state_dict()) and same(got[1], before)
        assert off(got[2], other.state_dict()) == {}
        serial(spec).load_state_dict(got[2])


def started(spec, mesh):
    """On a rank of a model that is made on the meta device: the state dict after init, and gradients."""
    made = hybridc.compile(spec, mesh=mesh)
    net = made.shard(made.skeleton(), device_mesh(mesh))
    net.to_empty(device="cpu")
    net.init_weights(3)
    found = net.whole_state_dict()
    net.step([rows_of(tokens(), net)])
    return found, net.whole_gradients()


@pytest.mark.parametrize(
    "spec, mesh",
    [
        (HYBRID, {"dp": "replicate(2)"}),
        (DENSE, {"tp": 2}),
        (COPIES, {"dp": "fsdp(2)", "tp": 2}),
        (HYBRID, {"dp": "fsdp(4)"}),
        (DENSE, {"dp": "fsdp(2)", "tp": 4}),
    ],
    ids=label,
)
def test_parameters_start_the_same_on_any_mesh_from_the_meta_device(spec, mesh):
    net = serial(spec, seed=3)
    want = {n: t.clone() for n, t in net.state_dict().items()}
    net.step([tokens()])
    grads = {n: p.grad for n, p in net.named_parameters(remove_duplicate=False)}
    for got, gradients in on_ranks(ranks(mesh), started, spec, mesh):
        assert same(got, want)
        assert off(gradients, grads) == {}


def refused(mesh, state):
    """On a rank: what is said of state dicts that are not the model's, and whether anything was written."""
    net = put(DENSE, mesh)
    before = net.whole_state_dict()
    said = []
    for wrong in (
        {n: t for n, t in state.items() if n != "head.rmsnorm.weight"},
        {**state, "more": torch.zeros(1)},
        {**state, "layers.0.attention.out.bias": torch.zeros(3)},
    ):
        with pytest.raises(UsageError) as error:
            net.load_whole_state_dict(wrong)
        said.append(str(error.value))
    assert same(net.whole_state_dict(), before)
    net.load_whole_state_dict(
        {"head.rmsnorm.weight": state["head.rmsnorm.weight"], "more": torch.zeros(1)}, strict=False
    )
    distributed.barrier()
    changed = net.whole_state_dict()
    return said, [n for n in before if not torch.equal(before[n], changed[n])]


@pytest.mark.parametrize("mesh", [DP[1], DP_TP[0]], ids=label)
def test_another_models_state_dict_is_refused(mesh):
    state = {n: t + 1 for n, t in serial(DENSE).state_dict().items()}
    for said, changed in on_ranks(ranks(mesh), refused, mesh, state):
        assert said[0].startswith("head.rmsnorm.weight is missing")
        assert said[1].startswith("more is not the model's")
        assert said[2].startswith("layers.0.attention.out.bias is [3] instead of [32]")
        assert changed == ["head.rmsnorm.weight"]
