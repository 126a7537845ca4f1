"""Routers and experts against loops over tokens in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from hybridc.runtime import ops
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import borders, close, gradients, made
from tests.runtime.ops.emitted import check_gradients, check_packed, layer


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


ROUTES = {
    "plain": dict(),
    "raw": dict(renormalize=False),
    "scaled": dict(scaling=2.5, eps=0.1),
    "raw and scaled": dict(renormalize=False, scaling=0.3),
    "biased": dict(bias=2 * made(5, 8)),
    "groups": dict(groups=4, top_groups=2),
    "pairs of groups": dict(groups=2, top_groups=1, bias=made(6, 8), scaling=1.5, eps=1e-20),
    "groups, all of them": dict(groups=4, top_groups=4, bias=made(6, 8)),
}
FUNCTIONS = {"softmax": ops.softmax_topk, "sigmoid": ops.sigmoid_topk}


@pytest.mark.parametrize("scores", FUNCTIONS)
@pytest.mark.parametrize("how", ROUTES)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_routers(k, how, scores):
    options = {"renormalize": True} | ROUTES[how]
    logits = 2 * made(4, 3, 9, 8)
    weights, ids = FUNCTIONS[scores](logits, k, **options)
    assert weights.dtype == torch.float32 and weights.shape == ids.shape == (3, 9, k)
    for row in range(3):
        want, choices = ref.route(logits[row], k, scores, **options)
        assert torch.equal(ids[row], choices)
        close(weights[row], want)
    (got,) = gradients(lambda x: FUNCTIONS[scores](x, k, **options)[0], [logits])
    (want,) = gradients(
        lambda x: torch.stack([ref.route(row, k, scores, **options)[0] for row in x]), [logits.double()]
    )
    close(got, want)


@pytest.mark.parametrize("scores", FUNCTIONS)
def test_half_logits_are_scored_in_fp32(scores):
    logits = made(4, 9, 8).to(torch.bfloat16)
    weights, ids = FUNCTIONS[scores](logits, 2, renormalize=True, bias=made(5, 8))
    want, choices = ref.route(logits, 2, scores, bias=made(5, 8))
    assert weights.dtype == torch.float32 and torch.equal(ids, choices)
    close(weights, want)


def act(name, x, beta=1.0):
    return {
        "silu": lambda: x / (1 + torch.exp(-beta * x)), "relu2": lambda: torch.relu(x) ** 2,
        "gelu": lambda: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    }[name]()  # fmt: skip


def moe(k, *, activation="silu", gated=True, scores="softmax", beta=1.0, limit=float("inf"), offset=0.0, **routing):
    """x [S, D] -> [S, D], expert after expert of each token."""

    def inside(gate_up):
        if not gated:
            return act(activation, gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return act(activation, torch.minimum(gate, torch.tensor(limit)), beta) * (up.clamp(-limit, limit) + offset)

    def run(x, **w):
        first = "gate_up" if gated else "up"
        logits = x @ w["router_weight"].T + w.get("router_bias", 0.0)
        weights, choices = ref.route(logits, k, scores, bias=w.get("correction_bias"), **routing)
        u = x @ w["latent_down_weight"].T + w.get("latent_down_bias", 0.0) if "latent_down_weight" in w else x
        rows = []
        for t, chosen in enumerate(choices.tolist()):
            row = torch.zeros(u.shape[-1], dtype=torch.float64)
            for weight, e in zip(weights[t], chosen, strict=True):
                h = w[f"experts_{first}"][e] @ u[t]
                h = inside(h + w[f"experts_{first}_bias"][e] if f"experts_{first}_bias" in w else h)
                y = w["experts_down"][e] @ h
                row = row + weight * (y + w["experts_down_bias"][e] if "experts_down_bias" in w else y)
            rows.append(row)
        y = torch.stack(rows)
        if "latent_up_weight" in w:
            y = y @ w["latent_up_weight"].T + w.get("latent_up_bias", 0.0)
        if f"shared_{first}_weight" in w:
            h = x @ w[f"shared_{first}_weight"].T + w.get(f"shared_{first}_bias", 0.0)
            h = act(activation, h) if not gated else act(activation, h.chunk(2, -1)[0]) * h.chunk(2, -1)[1]
            shared = h @ w["shared_down_weight"].T + w.get("shared_down_bias", 0.0)
            gate = 1 / (1 + torch.exp(-x @ w["shared_gate_weight"].T)) if "shared_gate_weight" in w else 1.0
            y = y + gate * shared
        return y

    return run


OPS = {
    "moe(experts=4, hidden=5, top_k=2)": moe(2),
    "moe(experts=6, hidden=3, top_k=2, scores=sigmoid, correction_bias=true, groups=3, top_groups=2, scaling=2.5, "
    "renormalize_eps=0.1)": moe(2, scores="sigmoid", groups=3, top_groups=2, scaling=2.5, eps=0.1),
    "moe(experts=3, hidden=4, top_k=2, router_bias=true, bias=true, beta=1.702, limit=0.4, up_offset=1)": moe(
        2, beta=1.702, limit=0.4, offset=1.0
    ),
    "moe(experts=4, hidden=5, top_k=2, latent=6, latent_bias=true, shared=4, shared_bias=true, gated=false, act=relu2, "
    "bias=true)": moe(2, activation="relu2", gated=False),
    "moe(experts=4, hidden=5, top_k=3, renormalize=false, shared=7, shared_gate=true, act=gelu, latent=3)": moe(
        3, activation="gelu", renormalize=False
    ),
}
LAYERS = {op: layer(op) for op in OPS}


@given(borders, st.sampled_from(list(OPS)))
@settings(max_examples=25)
def test_layers_of_packed_documents(borders, op):
    check_packed(LAYERS[op], OPS[op], borders)


@pytest.mark.parametrize("op", OPS)
def test_gradients_of_layers(op):
    check_gradients(LAYERS[op], OPS[op], [0, 1, 3, 12], without=("correction_bias",))


def test_a_correction_bias_is_trained_by_nobody():
    (op,) = (op for op in OPS if "correction_bias" in op)
    assert not LAYERS[op].correction_bias.requires_grad
