"""fla's kernels behind their adapters, interpreted; in a process of their own (`tests.runtime.libraries.isolated`)."""

import pytest
import torch

from hybridc.ir.backends.fla import WIDEST_KEY
from hybridc.runtime import ops
from hybridc.runtime.cache import MambaState
from hybridc.runtime.kernels.delta_rule import gated_delta_rule as our_delta_rule
from hybridc.runtime.kernels.ssd import ssd as our_ssd
from hybridc.runtime.libraries import fla
from tests.runtime.libraries.scenarios import (
    BORDERS,
    Mixer,
    check_gradients,
    check_packed_cache,
    check_pieces,
    check_rows,
)
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, made, plain


def delta_mixer(function=fla.gated_delta_rule, channels=False, key_heads=2):
    """Two keys for four values, or as many; with a decay for each channel, two of both."""
    heads = 2 if channels else 4
    key_heads = min(key_heads, heads)

    def call(timed, constants, ctx, state):
        return function(*timed, ctx, state)

    def model(timed, constants):
        return ref.delta_rule(*timed)

    def state(batch):
        return MambaState(batch, conv=(1, 2), ssm=(heads, 8, 6), device=CPU, dtype=torch.float32)

    g = -2 * torch.rand(3, 42, heads, *((8,) if channels else ()), generator=torch.Generator().manual_seed(2))
    beta = torch.rand(3, 42, heads, generator=torch.Generator().manual_seed(3))
    timed = [made(1, 3, 42, key_heads, 8), made(4, 3, 42, key_heads, 8), made(5, 3, 42, heads, 6), g, beta]
    return Mixer(call, model, timed, [], state)


def lightning_mixer(function=fla.lightning_attention):
    """In ssd's terms: steps of 1, keys for B, queries for C, no skip."""
    slopes = torch.tensor([0.5, 0.25, 2.0])

    def call(timed, constants, ctx, state):
        return function(*timed, slopes, ctx, state)

    def model(timed, constants):
        q, k, v = timed
        return ref.ssd(v, torch.ones(v.shape[:2]), -slopes, k, q, torch.zeros(3))

    def state(batch):
        return MambaState(batch, conv=(1, 2), ssm=(3, 8, 8), device=CPU, dtype=torch.float32)

    return Mixer(call, model, [made(n, 3, 42, 3, 8) for n in (1, 4, 5)], [], state)


def our_lightning(q, k, v, slopes, ctx, state):
    return our_ssd(v, torch.ones(v.shape[:3]), -slopes, k, q, None, ctx, state)


def lru_mixer(function=fla.rg_lru):
    """a_t = σ(-rate)^(c σ(r_t)), h_t = a_t h_{t-1} + sqrt(1 - a_t²) σ(i_t) x_t; h_1 = σ(i_1) x_1 (De et al., 2024)."""

    def call(timed, constants, ctx, state):
        return function(*timed, constants[0], ctx, state, c=2.0)

    def model(timed, constants):
        x, i, r, rate = (t.double() for t in (*timed, constants[0]))
        hs = [torch.sigmoid(i[0]) * x[0]]
        for t in range(1, len(x)):
            a = torch.sigmoid(-rate) ** (2.0 * torch.sigmoid(r[t]))
            hs.append(a * hs[-1] + torch.sqrt(1 - a**2) * torch.sigmoid(i[t]) * x[t])
        return torch.stack(hs), hs[-1]

    def state(batch):
        return MambaState(batch, conv=(1, 2), ssm=(5,), device=CPU, dtype=torch.float32)

    return Mixer(call, model, [made(n, 3, 42, 5) for n in (1, 4, 5)], [made(6, 5)], state)


MIXERS = {
    "delta rule": delta_mixer,
    "delta rule of channels": lambda: delta_mixer(channels=True),
    "lightning": lightning_mixer,
    "rg_lru": lru_mixer,
}
OTHERS = {
    "delta rule, as many keys": lambda: delta_mixer(key_heads=4),
    "delta rule in torch": lambda: delta_mixer(ops.gated_delta_rule),
    "delta rule, our kernel": lambda: delta_mixer(our_delta_rule),
    "delta rule of channels in torch": lambda: delta_mixer(ops.gated_delta_rule, channels=True),
    "delta rule of channels, our kernel": lambda: delta_mixer(our_delta_rule, channels=True),
    "lightning in torch": lambda: lightning_mixer(ops.lightning_attention),
    "lightning, our kernel": lambda: lightning_mixer(our_lightning),
    "rg_lru in torch": lambda: lru_mixer(ops.rg_lru),
}
mixers = pytest.mark.parametrize("mixer", MIXERS)


@mixers
def test_gradients_of_a_row(mixer):
    check_gradients(MIXERS[mixer]())


@pytest.mark.parametrize("form", {**MIXERS, **OTHERS})
def test_all_forms_have_the_same_values_and_gradients_of_documents(form):
    check_gradients({**MIXERS, **OTHERS}[form](), BORDERS)


@mixers
@pytest.mark.parametrize("grad", [False, True])
def test_a_cache_filled_in_pieces(mixer, grad):
    check_pieces(MIXERS[mixer](), [9, 1, 2, 1], grad)


@mixers
def test_packed_calls_into_one_cache(mixer):
    check_packed_cache(MIXERS[mixer]())


@mixers
def test_several_chunks(mixer):
    """The last one is not full, which is what steep slopes must bear."""
    several, length = MIXERS[mixer](), 140 if mixer == "rg_lru" else 70
    several.timed = [torch.cat((t, t.flip(1), t, t.flip(1)), dim=1)[:1, :length] for t in several.timed]
    check_rows(several)


def test_gradients_of_several_chunks_of_a_gated_recurrence():
    """Of which a chunk has 128 tokens."""
    several = lru_mixer()
    several.timed = [torch.cat((t, t.flip(1), t, t.flip(1)), dim=1)[:1, :140] for t in several.timed]
    check_gradients(several)


def test_keys_wider_than_the_kernels_hold_are_refused_by_the_library():
    q, k = (made(n, 1, 4, 1, WIDEST_KEY + 2) for n in (1, 2))
    for g in (-torch.ones(1, 4, 1), -torch.ones(1, 4, 1, WIDEST_KEY + 2)):
        with pytest.raises(AssertionError, match=str(WIDEST_KEY)):
            fla.gated_delta_rule(q, k, made(3, 1, 4, 1, 2), g, torch.ones(1, 4, 1), plain(1, 4))
