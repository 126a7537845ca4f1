"""Experts against a loop over tokens in float64."""

import pytest
import torch
from torch.nn import functional as F

from hybridc.runtime import ops
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import close, gradients, made


def layer_of(experts, dim=6, hidden=5, **options):
    layer = ops.Experts(experts, dim, hidden, **options)
    with torch.no_grad():
        for n, p in enumerate(layer.parameters()):
            p.copy_(made(n, *p.shape))
    return layer


def routed(experts, k, tokens=8, favour=0.0):
    logits = made(4, tokens, experts)
    logits[..., 0] += favour
    return ops.softmax_topk(logits, k, renormalize=True)


@pytest.mark.parametrize("favour", [0.0, 20.0])
@pytest.mark.parametrize(("experts", "k"), [(1, 1), (3, 1), (3, 2), (8, 2), (8, 8)])
def test_with_and_without_tokens(experts, k, favour):
    layer = layer_of(experts)
    x, (weights, ids) = made(3, 2, 4, 6), routed(experts, k, favour=favour)
    y = layer(x, weights.view(2, 4, k), ids.view(2, 4, k))
    close(y.view(8, 6), ref.experts(x.view(8, 6), weights, ids, layer.gate_up, layer.down))
    one = layer(x[:1, :1], weights[:1].view(1, 1, k), ids[:1].view(1, 1, k))
    close(one, y[:1, :1].double())


@pytest.mark.parametrize("favour", [0.0, 20.0])
def test_gradients(favour):
    layer = layer_of(4)
    weights, ids = routed(4, 2, favour=favour)
    given = [made(3, 8, 6), weights, layer.gate_up.detach(), layer.down.detach()]

    def ours(x, weights, gate_up, down):
        return torch.func.functional_call(layer, {"gate_up": gate_up, "down": down}, (x, weights, ids))

    got = gradients(ours, given)
    want = gradients(lambda x, w, g, d: ref.experts(x, w, ids, g, d), [i.double() for i in given])
    for g, w in zip(got, want, strict=True):
        close(g, w)
    unused = set(range(4)) - set(ids.unique().tolist())
    assert all(not got[3][e].any() for e in unused)


@pytest.mark.parametrize("act", ["silu", "gelu", "gelu_tanh", "relu", "relu2"])
def test_activations_without_a_gate(act):
    layer = layer_of(3, act=act, gated=False)
    x, (weights, ids) = made(3, 8, 6), routed(3, 2)
    function = {
        "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"), "relu": torch.relu,
        "relu2": lambda t: torch.relu(t) ** 2,
    }[act]  # fmt: skip
    want = torch.zeros(8, 6, dtype=torch.float64)
    for t in range(8):
        for w, e in zip(weights[t], ids[t], strict=True):
            want[t] += w.double() * (layer.down[e].double() @ function(layer.up[e].double() @ x[t].double()))
    close(layer(x, weights, ids), want.detach())


def test_what_others_choose_changes_no_bit():
    """Token 0 stands still while 0 to 30 others crowd its experts."""
    layer = layer_of(4, dim=64, hidden=48)
    x = made(3, 31, 64)
    _, ids = routed(4, 2, tokens=31)
    weights = torch.full((31, 2), 0.5)
    for others in (ids, ids[:1].expand(31, 2), (ids + 1) % 4):
        chosen = torch.cat((ids[:1], others[1:]))
        for count in (2, 3, 7, 31):
            y = layer(x[:count], weights[:count], chosen[:count])
            assert torch.equal(y[0], layer(x[:2], weights[:2], ids[:2])[0])


def test_softmax_topk():
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    weights, ids = ops.softmax_topk(logits, 2, renormalize=False)
    total = sum(2.718281828459045**v for v in (0.0, 1.0, 2.0))
    assert ids.tolist() == [[2, 1]]
    torch.testing.assert_close(weights, torch.tensor([[2.718281828**2 / total, 2.718281828 / total]]))
    renormalised, _ = ops.softmax_topk(logits, 2, renormalize=True)
    torch.testing.assert_close(renormalised.sum(-1), torch.ones(1))
