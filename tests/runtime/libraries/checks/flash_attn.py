"""flash-attn behind its adapter: the library's Python, and a stand-in for its CUDA part; in a process of its own
(`tests.runtime.libraries.isolated`)."""

import flash_attn.flash_attn_interface as interface
import pytest
import torch

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache, KVState
from hybridc.runtime.errors import UsageError
from hybridc.runtime.libraries import flash_attn
from tests.runtime.libraries import compiled_parts
from tests.runtime.libraries.scenarios import (
    BORDERS,
    Mixer,
    check_gradients,
    check_packed_cache,
    check_pieces,
    check_rows,
)
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, close, made, packed, plain

for _op in ("forward", "backward", "varlen_forward", "varlen_backward"):
    # torch knows the library's ops on CUDA tensors alone
    _made = getattr(interface, f"_flash_attn_{_op}")
    _made.register_kernel("cpu")(_made._init_fn)

OPTIONS = pytest.mark.parametrize("options", [{}, {"window": 5}, {"window": 1}, {"softcap": 3.0}], ids=str)


def mixer(function=flash_attn.attention, width=8, **options):
    def call(timed, constants, ctx, state):
        return function(*timed, ctx, state, scale=0.3, **options)

    def model(timed, constants):
        return ref.attention(*timed, 0.3, **options), None

    def state(batch):
        return KVState(batch, 42, heads=2, head_dim=width, device=CPU, dtype=torch.float32)

    timed = [made(1, 3, 42, 4, width), made(2, 3, 42, 2, width), made(3, 3, 42, 2, width)]
    return Mixer(call, model, timed, [], state)


@OPTIONS
def test_rows(options):
    check_rows(mixer(**options))


@pytest.mark.parametrize("borders", [None, BORDERS], ids=["row", "documents"])
@OPTIONS
@pytest.mark.parametrize("function", [flash_attn.attention, ops.attention])
def test_both_forms_have_the_same_values_and_gradients(function, options, borders):
    check_gradients(mixer(function, **options), borders)


@pytest.mark.parametrize("borders", [None, BORDERS], ids=["row", "documents"])
def test_heads_of_a_width_that_is_no_multiple_of_eight(borders):
    check_gradients(mixer(width=6), borders)


@OPTIONS
@pytest.mark.parametrize("grad", [False, True])
def test_a_cache_filled_in_pieces(options, grad):
    check_pieces(mixer(**options), [20, 1, 3, 1], grad)


@OPTIONS
def test_packed_calls_into_one_cache(options):
    check_packed_cache(mixer(**options))


@OPTIONS
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("length", [1, 3])
def test_rows_behind_pasts_of_different_length(options, grad, length):
    made_of = mixer(**options)
    state = made_of.state(3)
    cache = Cache([{"op": state}], 3, 42)
    cache.lengths = past = [4, 0, 9]
    for row, n in enumerate(past):
        state.k[row, :, :n], state.v[row, :, :n] = (t[row, :n].transpose(0, 1) for t in made_of.timed[1:])
    timed = [torch.stack([t[row, n : n + length] for row, n in enumerate(past)]) for t in made_of.timed]
    compiled_parts.CALLS.clear()
    with torch.set_grad_enabled(grad):
        inputs = [t.clone().requires_grad_(grad) for t in timed]
        y = made_of.call(inputs, [], plain(3, length, cache), state)
    assert [name for name, _ in compiled_parts.CALLS] == ["varlen_forward" if grad else "cache_forward"]
    if grad:
        y.square().sum().backward()
    for row, n in enumerate(past):
        whole = [t[row, : n + length].double().requires_grad_(grad) for t in made_of.timed]
        want = made_of.model(whole, [])[0][n:]
        close(y[row], want)
        if grad:
            want.square().sum().backward()
            for got, exact in zip(inputs, whole, strict=True):
                close(got.grad[row], exact.grad[n:])


@pytest.mark.parametrize("borders", [None, BORDERS], ids=["row", "documents"])
def test_dropout_reaches_the_library(borders):
    compiled_parts.CALLS.clear()
    dropped = mixer(dropout=0.25)
    dropped.call([t[:1] for t in dropped.timed], [], packed(borders) if borders else plain(1, 42), None)
    assert [given["p_dropout"] for _, given in compiled_parts.CALLS] == [0.25]


def test_sinks_are_refused():
    q, k, v = (made(n, 1, 4, 2, 8) for n in (1, 2, 3))
    with pytest.raises(UsageError, match="sinks"):
        flash_attn.attention(q, k, v, plain(1, 4), scale=1.0, sinks=torch.zeros(2))
