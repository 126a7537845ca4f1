"""Linear attention with fixed decays, alone and as it is emitted, against sums over all pairs in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain
from tests.runtime.ops.emitted import check_gradients, check_packed, check_pieces, check_ragged, layer
from tests.runtime.ops.reference import documents

OPS = {
    "lightning_attention(heads=2)": {},
    "lightning_attention(heads=4, head_dim=3, norm=rmsnorm(eps=0.01), chunk=5)": dict(heads=4, eps=0.01),
    "lightning_attention(heads=3, head_dim=2, slope_scale=0.3, act=relu)": dict(heads=3, scale=0.3, act=torch.relu),
}
LAYERS = {op: layer(op) for op in OPS}
layers = pytest.mark.parametrize("op", OPS)


def pairs(q, k, v, slopes):
    """y_t = Σ over s <= t of exp(-slope (t - s)) (q_t · k_s) v_s for q, k and v [S, H, D]."""
    q, k, v = q.double(), k.double(), v.double()
    t = torch.arange(q.shape[0], dtype=torch.float64)
    gaps = t[:, None] - t
    out = []
    for h, slope in enumerate(slopes.tolist()):
        decay = torch.where(gaps >= 0, torch.exp(-slope * gaps.clamp(min=0)), 0.0)
        out.append((decay * (q[:, h] @ k[:, h].T)) @ v[:, h])
    return torch.stack(out, 1)


def slopes_of(heads, scale=1.0):
    """2^(-8 / heads), its square, ...: the geometric row of Press et al., 2022, section 3."""
    ratio = 2.0 ** (-8.0 / heads)
    return torch.tensor([scale * ratio ** (h + 1) for h in range(heads)], dtype=torch.float64)


def reference(op):
    heads, scale, act, eps = ({"heads": 2, "scale": 1.0, "act": None, "eps": None} | OPS[op]).values()
    act = act or (lambda t: t / (1 + torch.exp(-t)))

    def lightning_attention(x, in_proj_weight, out_proj_weight, norm_weight=None):
        q, k, v, gate = (x @ in_proj_weight.T).chunk(4, dim=-1)
        q, k, v = (act(t).unflatten(-1, (heads, -1)) for t in (q, k, v))
        y = pairs(q, k, v, slopes_of(heads, scale)).flatten(-2)
        if norm_weight is not None:
            y = y / torch.sqrt((y * y).mean(-1, keepdim=True) + eps) * norm_weight
        return (y / (1 + torch.exp(-gate))) @ out_proj_weight.T

    return lightning_attention


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 12])
def test_slopes(heads):
    close(ops.alibi_slopes(heads, 0.7, CPU), slopes_of(heads, 0.7), 1e-6)


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("length", [1, 2, 33, 130])
def test_any_length_and_chunk(length, chunk):
    qkv = [made(n, 2, length, 3, 5) for n in (1, 2, 3)]
    slopes = ops.alibi_slopes(3, 1.0, CPU)
    y = ops.lightning_attention(*qkv, slopes, plain(2, length), chunk=chunk)
    for row in range(2):
        close(y[row], pairs(*(t[row] for t in qkv), slopes_of(3)))


@pytest.mark.parametrize("chunk", [3, 64])
def test_gradients_of_the_sums(chunk):
    border = [0, 1, 9, 22]
    qkv, slopes = [made(n, 1, 22, 2, 4) for n in (1, 2, 3)], ops.alibi_slopes(2, 1.0, CPU)
    got = gradients(lambda *i: ops.lightning_attention(*i, slopes, packed(border), chunk=chunk), qkv)

    def sequential(*i):
        return torch.cat([pairs(*(t[0, s:e] for t in i), slopes_of(2)) for s, e in documents(border)])[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in qkv]), strict=True):
        close(g, w)


def test_half_inputs_are_summed_in_fp32():
    qkv = [made(n, 1, 40, 2, 4).to(torch.bfloat16) for n in (1, 2, 3)]
    y = ops.lightning_attention(*qkv, ops.alibi_slopes(2, 1.0, CPU), plain(1, 40), chunk=8)
    want = pairs(*(t[0] for t in qkv), slopes_of(2))
    assert y.dtype == torch.bfloat16
    assert ((y[0].double() - want).abs() <= want.abs() * 2**-8 + 1e-4).all()


@given(borders, st.sampled_from(list(OPS)))
@settings(max_examples=30)
def test_packed_documents(borders, op):
    check_packed(LAYERS[op], reference(op), borders)


@layers
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_cache_filled_in_pieces(pieces, op):
    check_pieces(LAYERS[op], reference(op), pieces)


@layers
def test_a_cache_of_rows_of_different_length(op):
    check_ragged(LAYERS[op], reference(op))


@layers
@pytest.mark.parametrize("border", [[0, 9], [0, 1, 3, 12]], ids=str)
def test_gradients(border, op):
    check_gradients(LAYERS[op], reference(op), border)
