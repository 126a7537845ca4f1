"""mamba-ssm behind its adapters: Triton kernels interpreted, Mamba's scan by a stand-in for its CUDA part; in a process
of its own (`tests.runtime.libraries.isolated`)."""

from itertools import pairwise

import pytest
import torch

from hybridc.runtime import ops
from hybridc.runtime.cache import MambaState
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.selective_scan import selective_scan as our_scan
from hybridc.runtime.kernels.ssd import ssd as our_ssd
from hybridc.runtime.libraries import mamba_ssm
from tests.runtime.libraries.scenarios import (
    BORDERS,
    Mixer,
    check_gradients,
    check_packed_cache,
    check_pieces,
    check_rows,
)
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, close, gradients, made, packed, plain


def ssd_mixer(function=mamba_ssm.ssd, groups=2):
    dt = torch.rand(3, 42, 4, generator=torch.Generator().manual_seed(2)) * 1.5
    a = -(0.1 + 3 * torch.rand(4, generator=torch.Generator().manual_seed(3)))

    def call(timed, constants, ctx, state):
        x, dt, b, c = timed
        return function(x, dt, constants[0], b, c, constants[1], ctx, state, chunk=16)

    def model(timed, constants):
        x, dt, b, c = timed
        return ref.ssd(x, dt, constants[0], b, c, constants[1])

    def state(batch):
        return MambaState(batch, conv=(1, 2), ssm=(4, 3, 5), device=CPU, dtype=torch.float32)

    timed = [made(1, 3, 42, 4, 3), dt, made(4, 3, 42, groups, 5), made(5, 3, 42, groups, 5)]
    return Mixer(call, model, timed, [a, made(6, 4)], state)


def scan_mixer(function=mamba_ssm.selective_scan):
    dt = torch.rand(3, 42, 6, generator=torch.Generator().manual_seed(2))
    a = -(0.1 + 3 * torch.rand(6, 5, generator=torch.Generator().manual_seed(3)))

    def call(timed, constants, ctx, state):
        u, dt, b, c = timed
        return function(u, dt, constants[0], b, c, constants[1], ctx, state)

    def model(timed, constants):
        u, dt, b, c = timed
        return ref.selective_scan(u, dt, constants[0], b, c, constants[1])

    def state(batch):
        return MambaState(batch, conv=(1, 2), ssm=(6, 5), device=CPU, dtype=torch.float32)

    timed = [made(1, 3, 42, 6), dt, made(4, 3, 42, 5), made(5, 3, 42, 5)]
    return Mixer(call, model, timed, [a, made(6, 6)], state)


MIXERS = pytest.mark.parametrize("mixer", [ssd_mixer, scan_mixer])


@MIXERS
def test_rows(mixer):
    check_rows(mixer())


@pytest.mark.parametrize("borders", [None, BORDERS], ids=["row", "documents"])
@pytest.mark.parametrize(
    "mixer",
    [
        lambda: ssd_mixer(mamba_ssm.ssd),
        lambda: ssd_mixer(mamba_ssm.ssd, groups=1),
        lambda: ssd_mixer(ops.ssd),
        lambda: ssd_mixer(our_ssd),
        lambda: scan_mixer(mamba_ssm.selective_scan),
        lambda: scan_mixer(ops.selective_scan),
        lambda: scan_mixer(our_scan),
    ],
    ids=["library", "library of one group", "torch", "kernel", "library's scan", "torch's scan", "kernel's scan"],
)
def test_all_forms_have_the_same_values_and_gradients(mixer, borders):
    check_gradients(mixer(), borders)


@MIXERS
@pytest.mark.parametrize("grad", [False, True])
def test_a_cache_filled_in_pieces(mixer, grad):
    check_pieces(mixer(), [20, 1, 3, 1], grad)


@MIXERS
def test_packed_calls_into_one_cache(mixer):
    check_packed_cache(mixer())


@pytest.mark.parametrize("borders", [None, BORDERS], ids=["rows", "documents"])
def test_gradients_from_and_to_states(borders):
    mixer = ssd_mixer()
    (x, dt, b, c), (a, d) = [t[:1] for t in mixer.timed], mixer.constants
    spans = [(0, 42)] if borders is None else list(pairwise(borders))
    ctx = None if borders is None else packed(borders)
    first = made(8, len(spans), 4, 3, 5)

    def ours(x, dt, a, b, c, d, first):
        y, last = mamba_ssm.ssd(x, dt, a, b, c, d, ctx, chunk=16, initial_state=first, return_state=True)
        return torch.cat((y.flatten(), last.flatten()))

    def modelled(x, dt, a, b, c, d, first):
        ys, lasts = [], []
        for n, (s, e) in enumerate(spans):
            inputs = (x[0, s:e], dt[0, s:e], a, b[0, s:e], c[0, s:e], d, first[n])
            y, last = ref.ssd(*inputs) if e > s else (x[0, :0], first[n])
            ys.append(y)
            lasts.append(last)
        return torch.cat((torch.cat(ys).flatten(), torch.stack(lasts).flatten()))

    given = [x, dt, a, b, c, d, first]
    for got, want in zip(gradients(ours, given), gradients(modelled, [t.double() for t in given]), strict=True):
        close(got, want)


@pytest.mark.parametrize("skip", [True, False])
def test_a_step_writes_the_state_in_place_unless_it_is_wanted(skip):
    mixer = ssd_mixer()
    (x, dt, b, c), (a, d) = [t[:2, :1] for t in mixer.timed], mixer.constants
    initial = made(8, 2, 4, 3, 5)
    for grad, returned in ((False, False), (False, True), (True, False)):
        state = mixer.state(2)
        state.ssm = initial.clone()
        held = state.ssm
        with torch.set_grad_enabled(grad):
            out = mamba_ssm.ssd(x, dt, a, b, c, d if skip else None, plain(2, 1), state, return_state=returned)
        assert (state.ssm is held) or grad
        assert torch.equal(held, initial) == grad
        y = out[0] if returned else out
        for row in range(2):
            inputs = (x[row], dt[row], a, b[row], c[row], d if skip else torch.zeros(4), initial[row])
            want, last = ref.ssd(*inputs)
            close(y[row], want)
            close(state.ssm[row], last)


def test_a_scan_has_no_gradients_behind_a_past():
    mixer = scan_mixer()
    state = mixer.state(3)
    with pytest.raises(UsageError, match="empty cache"):
        ctx = plain(3, 2)
        ctx.past = [4, 4, 4]
        mixer.call([t[:, :2].clone().requires_grad_() for t in mixer.timed], mixer.constants, ctx, state)


def normed(x, gate, weight, groups, gate_first, eps):
    """The norm's formula in float64, for x [S, D]."""
    x, gate, weight = x.double(), gate.double(), weight.double()
    act = gate / (1 + torch.exp(-gate))
    y = (x * act if gate_first else x).unflatten(-1, (groups, -1))
    y = (y / (y.square().mean(-1, keepdim=True) + eps).sqrt()).flatten(-2) * weight
    return y if gate_first else y * act


@pytest.mark.parametrize("gate_first", [True, False])
@pytest.mark.parametrize("groups", [1, 3])
def test_gated_norm(groups, gate_first):
    norm = mamba_ssm.GatedRMSNorm(12, eps=1e-3, groups=groups, gate_first=gate_first)
    assert set(dict(norm.named_parameters())) == {"weight"}

    def ours(x, gate, weight):
        return torch.func.functional_call(norm, {"weight": weight}, (x, gate))

    def modelled(x, gate, weight):
        return normed(x, gate, weight, groups, gate_first, 1e-3)

    given = [made(1, 2, 5, 12), made(2, 2, 5, 12), made(3, 12)]
    close(ours(*given), modelled(*given))
    for got, want in zip(gradients(ours, given), gradients(modelled, [t.double() for t in given]), strict=True):
        close(got, want)


def test_a_norm_with_another_gate_is_refused():
    with pytest.raises(UsageError, match="sigmoid"):
        mamba_ssm.GatedRMSNorm(12, eps=1e-3, act="sigmoid")
