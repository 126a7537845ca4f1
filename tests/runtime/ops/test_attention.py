"""Attention against softmaxes in float64, token after token."""

from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain
from tests.runtime.ops.emitted import check_gradients, check_packed, check_pieces, check_ragged, layer

HEADS = [(4, 4), (4, 2), (4, 1)]


def inputs(rows, length, heads=(4, 2), width=6):
    return made(1, rows, length, heads[0], width), *(made(n, rows, length, heads[1], width) for n in (2, 3))


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("window", [None, 1, 5, 150])
@pytest.mark.parametrize("length", [1, 2, 129, 300])
def test_rows(length, window, heads):
    qkv = inputs(2, length, heads)
    y = ops.attention(*qkv, plain(2, length), None, scale=0.5, window=window)
    for row in range(2):
        close(y[row], ref.attention(*(t[row] for t in qkv), 0.5, window))


@given(borders, st.sampled_from([None, 1, 3, 8, 500]), st.sampled_from(HEADS))
@settings(max_examples=40)
def test_packed_documents(borders, window, heads):
    qkv = inputs(1, borders[-1], heads)
    y = ops.attention(*qkv, packed(borders), None, scale=0.3, window=window)
    for s, e in ref.documents(borders):
        close(y[0, s:e], ref.attention(*(t[0, s:e] for t in qkv), 0.3, window))


@pytest.mark.parametrize("window", [None, 6, 140])
@pytest.mark.parametrize("pieces", [*PIECES, [150, 200, 1]], ids=str)
def test_a_cache_filled_in_pieces(pieces, window):
    total = sum(pieces)
    state = ops.KVState(2, total, heads=2, head_dim=6, device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 2, total)
    qkv, got, at = inputs(2, total), [], 0
    with torch.no_grad():
        for n in pieces:
            part = [t[:, at : at + n] for t in qkv]
            got.append(ops.attention(*part, plain(2, n, cache), state, scale=0.4, window=window))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        close(torch.cat(got, 1)[row], ref.attention(*(t[row] for t in qkv), 0.4, window))


@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("grad", [False, True])
def test_steps_behind_pasts_of_different_length(step, window, grad):
    past = [9, 0, 4]
    state = ops.KVState(3, 12, heads=2, head_dim=6, device=CPU, dtype=torch.float32)
    cache = Cache([{"op": state}], 3, 12)
    qkv = inputs(3, 12)
    with torch.no_grad():
        offsets = [0, 9, 9, 13]
        first = [torch.cat([t[r, : past[r]] for r in range(3)])[None] for t in qkv]
        ops.attention(*first, packed(offsets, cache), state, scale=0.4, window=window)
        cache.advance(past)
    new = [torch.stack([t[r, past[r] : past[r] + step] for r in range(3)]) for t in qkv]
    with torch.set_grad_enabled(grad):
        y = ops.attention(*new, plain(3, step, cache), state, scale=0.4, window=window)
    for r in range(3):
        want = ref.attention(*(t[r, : past[r] + step] for t in qkv), 0.4, window)
        close(y[r], want[past[r] :])


@pytest.mark.parametrize("window", [None, 3, 130])
@pytest.mark.parametrize("border", [[0, 12], [0, 1, 9, 22], [0, 5, 300]], ids=str)
def test_gradients(border, window):
    qkv = inputs(1, border[-1], (2, 1), 4)
    got = gradients(lambda *i: ops.attention(*i, packed(border), None, scale=0.6, window=window), qkv)

    def sequential(*i):
        parts = [ref.attention(*(t[0, s:e] for t in i), 0.6, window) for s, e in ref.documents(border)]
        return torch.cat(parts)[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in qkv]), strict=True):
        close(g, w)


def test_a_window_costs_no_square_of_the_length():
    """The largest tensor that a window of 64 makes over 4,096 tokens; a mask of all against all has 16.8 million."""
    largest = 0

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(t, torch.Tensor):
                    largest = max(largest, t.numel())
            return out

    qkv = inputs(1, 4096, (2, 1), 8)
    for context in (plain(1, 4096), packed([0, 4096]), packed([0, 1000, 4096])):
        with Largest(), torch.no_grad():
            ops.attention(*qkv, context, None, scale=1.0, window=64)
            ops.attention(*qkv, context, None, scale=1.0)
    assert largest < 4096 * 64


SOFTMAXES = {
    "capped": dict(softcap=0.7),
    "sinks": dict(sinks=2 * made(7, 4)),
    "both": dict(softcap=2.0, sinks=made(8, 4)),
}
softmaxes = pytest.mark.parametrize("how", SOFTMAXES)


@softmaxes
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("length", [1, 2, 140])
def test_other_softmaxes(length, window, heads, how):
    qkv = inputs(2, length, heads)
    y = ops.attention(*qkv, plain(2, length), None, scale=0.5, window=window, **SOFTMAXES[how])
    for row in range(2):
        close(y[row], ref.attention(*(t[row] for t in qkv), 0.5, window, **SOFTMAXES[how]))


@softmaxes
@pytest.mark.parametrize("rows", [1, 7])
def test_scores_are_made_for_some_rows_at_a_time(rows, how, monkeypatch):
    qkv = inputs(1, 20)
    monkeypatch.setattr(import_module("hybridc.runtime.ops.attention"), "SCORES", rows * 4 * 20)
    for window in (None, 3):
        y = ops.attention(*qkv, plain(1, 20), None, scale=0.5, window=window, **SOFTMAXES[how])
        close(y[0], ref.attention(*(t[0] for t in qkv), 0.5, window, **SOFTMAXES[how]))


@given(borders, st.sampled_from([None, 1, 3, 8, 500]), st.sampled_from(list(SOFTMAXES)))
@settings(max_examples=20)
def test_other_softmaxes_of_packed_documents(borders, window, how):
    qkv = inputs(1, borders[-1])
    y = ops.attention(*qkv, packed(borders), None, scale=0.3, window=window, **SOFTMAXES[how])
    for s, e in ref.documents(borders):
        close(y[0, s:e], ref.attention(*(t[0, s:e] for t in qkv), 0.3, window, **SOFTMAXES[how]))


@softmaxes
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("border", [[0, 12], [0, 1, 9, 22]], ids=str)
def test_gradients_of_other_softmaxes(border, window, how):
    softcap, sinks = SOFTMAXES[how].get("softcap"), SOFTMAXES[how].get("sinks")
    given = [*inputs(1, border[-1]), *([] if sinks is None else [sinks])]

    def ours(q, k, v, sinks=None):
        return ops.attention(q, k, v, packed(border), None, scale=0.6, window=window, softcap=softcap, sinks=sinks)

    def sequential(q, k, v, sinks=None):
        parts = [[t[0, s:e] for t in (q, k, v)] for s, e in ref.documents(border)]
        return torch.cat([ref.attention(*p, 0.6, window, softcap, sinks) for p in parts])[None]

    for g, w in zip(gradients(ours, given), gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_sinks_of_the_greatest_logit_overflow_nothing():
    q, k, v = inputs(1, 5)
    y = ops.attention(q, k, v, plain(1, 5), None, scale=1.0, sinks=torch.tensor([500.0, -500.0, 0.0, 0.0]))
    assert not y[:, :, 0].any()
    close(y[0, :, 1], ref.attention(q[0, :, 1:2], k[0, :, :1], v[0, :, :1], 1.0)[:, 0])


@pytest.mark.parametrize("how", [{}, *SOFTMAXES.values()], ids=["plain", *SOFTMAXES])
def test_dropout_drops_weights_and_makes_up_for_them(how):
    """Values that show the weights: each is gone, or as large as it was over what stays."""
    length, share = 40, 0.3
    q, k, _ = inputs(8, length)
    v = torch.eye(length).view(1, length, 1, length).expand(8, -1, 2, -1)
    kept = ops.attention(q, k, v, plain(8, length), None, scale=0.5, **how)
    torch.manual_seed(0)
    y = ops.attention(q, k, v, plain(8, length), None, scale=0.5, dropout=share, **how)
    seen = kept > 0
    dropped = seen & (y == 0)
    torch.testing.assert_close(y[~dropped], kept[~dropped] / (1 - share))
    # 26,240 weights: six standard deviations
    assert abs(dropped.sum() / seen.sum() - share) < 6 * (share * (1 - share) / seen.sum()) ** 0.5
    assert torch.equal(ops.attention(q, k, v, plain(8, length), None, scale=0.5, dropout=0.0, **how), kept)


@pytest.mark.parametrize("op", ["attention(heads=2", "mla(heads=2, kv_rank=3, nope_dim=2, rope_dim=2"])
def test_dropout_is_for_training(op):
    module, x = layer(f"{op}, dropout=0.5)"), made(1, 2, 9, 8)
    module.eval()
    assert torch.equal(module(x, plain(2, 9)), module(x, plain(2, 9)))
    module.train()
    assert not torch.equal(module(x, plain(2, 9)), module(x, plain(2, 9)))


def normed(x, weight, eps=1e-5):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def attention(heads, kv_heads, width, *, clip=None, over=None, key_scale=1.0, gated=False, **softmax):
    """x [S, D] -> [S, D], in this order: norms over all heads, clip, norms of heads, attention, gate, norm, out."""

    def run(x, **w):
        q, kv = heads * width, kv_heads * width
        rows = (q, q, kv, kv) if gated else (q, kv, kv)
        q, *gate, k, v = (x @ w["qkv_weight"].T + w.get("qkv_bias", 0.0)).split(rows, dim=-1)
        if over == "all":
            q, k = normed(q, w["q_norm_weight"]), normed(k, w["k_norm_weight"])
        if clip:
            q, k, v = (torch.maximum(torch.minimum(t, torch.tensor(clip)), torch.tensor(-clip)) for t in (q, k, v))
        q, k, v = (t.unflatten(-1, (-1, width)) for t in (q, k, v))
        if over == "head":
            q, k = normed(q, w["q_norm_weight"]), normed(k, w["k_norm_weight"])
        y = ref.attention(q, key_scale * k, v, width**-0.5, **softmax, sinks=w.get("sinks")).flatten(-2)
        if gated:
            y = y / (1 + torch.exp(-gate[0]))
        if "out_norm_weight" in w:
            y = normed(y, w["out_norm_weight"])
        return y @ w["out_weight"].T + w.get("out_bias", 0.0)

    return run


OPS = {
    "attention(heads=4, kv_heads=2, sinks=true, window=3, bias=true, out_bias=true)": attention(4, 2, 2, window=3),
    "attention(heads=2, head_dim=3, softcap=0.4, gated=true, key_scale=-1.5)": attention(
        2, 2, 3, softcap=0.4, gated=True, key_scale=-1.5
    ),
    "attention(heads=4, kv_heads=1, clip=0.3, out_norm=rmsnorm())": attention(4, 1, 2, clip=0.3),
    "attention(heads=2, kv_heads=1, clip=0.5, qk_norm=rmsnorm(), qk_norm_over=all, gated=true, bias=true)": attention(
        2, 1, 4, clip=0.5, over="all", gated=True
    ),
    "attention(heads=2, clip=0.5, qk_norm=rmsnorm(), softcap=3, sinks=true)": attention(
        2, 2, 4, clip=0.5, over="head", softcap=3.0
    ),
}
LAYERS = {op: layer(op) for op in OPS}
layers = pytest.mark.parametrize("op", OPS)


@given(borders, st.sampled_from(list(OPS)))
@settings(max_examples=20)
def test_layers_of_packed_documents(borders, op):
    check_packed(LAYERS[op], OPS[op], borders)


@layers
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_layers_cache_filled_in_pieces(pieces, op):
    check_pieces(LAYERS[op], OPS[op], pieces)


@layers
def test_a_layers_cache_of_rows_of_different_length(op):
    check_ragged(LAYERS[op], OPS[op])


@layers
def test_gradients_of_layers(op):
    check_gradients(LAYERS[op], OPS[op], [0, 1, 3, 12])
