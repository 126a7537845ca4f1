"""Multi-head latent attention as it is emitted, against keys and values of all heads written out in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, plain
from tests.runtime.ops.emitted import check_gradients, check_packed, check_pieces, check_ragged, layer


def rmsnorm(eps):
    return lambda x, weight: x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def layernorm(eps):
    def norm(x, weight, bias):
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight + bias

    return norm


def wavelengths(theta, channels):
    return torch.tensor([theta ** (-2.0 * i / channels) for i in range(channels // 2)], dtype=torch.float64)


def mla(heads, rank, nope, rope, value, *, scale=None, norm=None, frequencies=None, interleaved=False):
    """x [S, D] -> [S, D]: DeepSeek-V2, 2024, with the biases, norms and gates that there are weights for."""

    def run(x, **w):
        def linear(name, x):
            return x @ w[f"{name}_weight"].T + w.get(f"{name}_bias", 0.0)

        def normed(name, x):
            own = [w[f"{name}_{part}"] for part in ("weight", "bias") if f"{name}_{part}" in w]
            return norm(x, *own) if norm else x

        def turned(x):
            return x if frequencies is None else ref.turned(x, frequencies, interleaved=interleaved)

        q = linear("q_up", normed("q_norm", linear("q_down", x))) if "q_down_weight" in w else linear("q", x)
        q = q.unflatten(-1, (heads, nope + rope))
        q = torch.cat((q[..., :nope], turned(q[..., nope:])), -1)
        down = linear("kv_down", x)
        latent, shared = normed("kv_norm", down[:, :rank]), turned(down[:, None, rank:])
        both = linear("kv_up", latent).unflatten(-1, (heads, nope + value))
        k = torch.cat((both[..., :nope], shared.expand(-1, heads, -1)), -1)
        y = ref.attention(q, k, both[..., nope:], scale or (nope + rope) ** -0.5)
        if "gate_weight" in w:
            y = y / (1 + torch.exp(-linear("gate", x)))[..., None]
        return linear("out", y.flatten(-2))

    return run


OPS = {
    "mla(heads=2, kv_rank=5, nope_dim=3, rope_dim=2)": mla(2, 5, 3, 2, 3),
    "mla(heads=3, kv_rank=4, nope_dim=4, rope_dim=4, value_dim=3, q_rank=6, rope=rope(theta=100), norm=rmsnorm("
    "eps=0.01), bias=true)": mla(3, 4, 4, 4, 3, norm=rmsnorm(0.01), frequencies=wavelengths(100, 4)),
    "mla(heads=2, kv_rank=3, nope_dim=2, rope_dim=4, value_dim=5, rope=rope(theta=50, interleaved=true), norm="
    "layernorm(), scale=0.3, gated=true)": mla(
        2, 3, 2, 4, 5, scale=0.3, norm=layernorm(1e-5), frequencies=wavelengths(50, 4), interleaved=True
    ),
    "mla(heads=1, kv_rank=3, nope_dim=2, rope_dim=4, q_rank=2, rope=rope(theta=30, partial=0.5))": mla(
        1, 3, 2, 4, 2, frequencies=wavelengths(30, 2)
    ),
}
LAYERS = {op: layer(op) for op in OPS}
layers = pytest.mark.parametrize("op", OPS)


@given(borders, st.sampled_from(list(OPS)))
@settings(max_examples=30)
def test_packed_documents(borders, op):
    check_packed(LAYERS[op], OPS[op], borders)


@layers
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_cache_filled_in_pieces(pieces, op):
    check_pieces(LAYERS[op], OPS[op], pieces)


@layers
def test_a_cache_of_rows_of_different_length(op):
    check_ragged(LAYERS[op], OPS[op])


@layers
@pytest.mark.parametrize("border", [[0, 9], [0, 1, 3, 12]], ids=str)
def test_gradients(border, op):
    check_gradients(LAYERS[op], OPS[op], border)


@pytest.mark.parametrize("past", [[4, 4], [4, 1]], ids=str)
@pytest.mark.parametrize("step", [1, 3])
def test_gradients_behind_a_cache(step, past):
    """Of the new tokens and of kv_up, which earlier latents go through too; those latents themselves are constants."""
    heads, nope, rope, value, rank = 2, 3, 2, 4, 5
    old, new = ([made(n, 2, length, *s) for n, s in enumerate(((heads, nope + rope), (rank,), (1, rope)), start)]
                for start, length in ((1, max(past)), (5, step)))  # fmt: skip
    up = made(9, heads * (nope + value), rank)
    options = dict(value_dim=value, scale=0.4)

    def ours(q, latent, shared, up):
        state = ops.LatentState(2, 9, rank=rank, rope_dim=rope, device=CPU, dtype=torch.float32)
        cache = Cache([{"op": state}], 2, 9)
        with torch.no_grad():
            # rows of different length: what stands behind a row's own length is written over
            ops.latent_attention(*old, up, plain(2, max(past), cache), state, **options)
            cache.advance(past)
        return ops.latent_attention(q, latent, shared, up, plain(2, step, cache), state, **options)

    def written_out(q, latent, shared, up):
        rows = []
        for r, n in enumerate(past):
            before = [t[r, :n].double() for t in old]
            q_, c, s = (torch.cat((b, t[r])) for b, t in zip(before, (q, latent, shared), strict=True))
            kv = (c @ up.T).unflatten(-1, (heads, nope + value))
            k = torch.cat((kv[..., :nope], s.expand(-1, heads, -1)), -1)
            rows.append(ref.attention(q_, k, kv[..., nope:], 0.4)[n:])
        return torch.stack(rows)

    given = [*new, up]
    close(ours(*given), written_out(*(t.double() for t in given)))
    for g, w in zip(gradients(ours, given), gradients(written_out, [t.double() for t in given]), strict=True):
        close(g, w)


def test_the_cache_holds_latents_alone():
    (state,) = (LAYERS[op].new_state(2, 7, CPU, torch.float32) for op in list(OPS)[:1])
    tensors = [t for t in vars(state).values() if isinstance(t, torch.Tensor)]
    assert [t.numel() for t in tensors] == [2 * 7 * (5 + 2)]
