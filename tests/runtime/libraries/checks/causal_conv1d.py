"""causal-conv1d behind its adapter: the library's Python and its Triton kernel, and a stand-in for its CUDA part; in a
process of its own (`tests.runtime.libraries.isolated`)."""

import pytest
import torch
from torch.func import functional_call

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache, ConvState
from hybridc.runtime.kernels import conv as kernels
from hybridc.runtime.libraries import causal_conv1d
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


def mixer(module=causal_conv1d.CausalConv1d, taps=4, bias=True, cut=False, **options):
    """`cut`: channels are a part of wider rows, as a projection's are."""
    conv = module(8, taps, bias=bias)
    names = [name for name, _ in conv.named_parameters()]

    def call(timed, constants, ctx, state):
        x = timed[0]
        if cut:
            x = torch.cat((x.new_zeros(*x.shape[:2], 5), x), dim=-1)[..., 5:]
        return functional_call(conv, dict(zip(names, constants, strict=True)), (x, ctx, state), options)

    def model(timed, constants):
        y = ref.conv(timed[0], constants[0], constants[1] if bias else None)
        return y * torch.sigmoid(y) if options.get("silu") else y, None

    def state(batch):
        return ConvState(batch, conv=(8, taps), device=CPU, dtype=torch.float32)

    constants = [made(2, 8, taps), made(3, 8)][: 1 + bias]
    return Mixer(call, model, [made(1, 3, 42, 8)], constants, state)


@pytest.mark.parametrize("taps", [2, 3, 4])
@pytest.mark.parametrize("cut", [False, True])
def test_rows(taps, cut):
    check_rows(mixer(taps=taps, cut=cut))


@pytest.mark.parametrize("borders", [None, BORDERS], ids=["row", "documents"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("module", [causal_conv1d.CausalConv1d, ops.CausalConv1d, kernels.CausalConv1d])
def test_all_forms_have_the_same_values_and_gradients(module, bias, borders):
    check_gradients(mixer(module, bias=bias), borders)


@pytest.mark.parametrize("borders", [None, BORDERS], ids=["row", "documents"])
def test_silu(borders):
    check_gradients(mixer(silu=True), borders)


OPTIONS = pytest.mark.parametrize("options", [{"taps": 2}, {"taps": 4}, {"silu": True}], ids=str)


@pytest.mark.parametrize("grad", [False, True])
@OPTIONS
def test_a_cache_filled_in_pieces(options, grad):
    check_pieces(mixer(**options), [1, 20, 1, 3, 1], grad)


@OPTIONS
def test_packed_calls_into_one_cache(options):
    check_packed_cache(mixer(**options))


def test_documents_are_one_call_and_steps_the_kernel_for_steps():
    conv = mixer()
    state = conv.state(2)
    cache = Cache([{"op": state}], 2, 9)
    compiled_parts.CALLS.clear()
    with torch.no_grad():
        conv.call([conv.timed[0][:1, :9]], conv.constants, packed([0, 4, 9], cache), state)
        cache.advance([4, 5])
        conv.call([conv.timed[0][:2, :1]], conv.constants, plain(2, 1, cache), state)
    names = [name for name, _ in compiled_parts.CALLS]
    assert names == ["conv_forward", "conv_update"]
    assert compiled_parts.CALLS[0][1]["seq_idx"].tolist() == [[0] * 4 + [1] * 5]
    close(state.conv[1], torch.cat((conv.timed[0][0, 7:9], conv.timed[0][1, :1])))


def test_a_step_under_autograd_leaves_the_old_state_as_it_was():
    conv = mixer()
    state = conv.state(2)
    held = state.conv
    conv.call([conv.timed[0][:2, :1]], conv.constants, plain(2, 1), state)
    assert torch.equal(held, torch.zeros(2, 3, 8)) and state.conv[0, -1].eq(conv.timed[0][0, 0]).all()


def test_half_inputs_keep_a_state_of_fp32():
    conv, state = causal_conv1d.CausalConv1d(8, 4).half(), mixer().state(2)
    x = made(1, 2, 5, 8).half()
    with torch.no_grad():
        y = torch.cat([conv(x[:, t : t + 1], plain(2, 1), state) for t in range(5)], dim=1)
    assert (y.dtype, state.conv.dtype) == (torch.float16, torch.float32)
    for row in range(2):
        close(y[row], ref.conv(x[row], conv.weight, conv.bias), 2e-3)
    assert torch.equal(state.conv, x[:, 2:].float())
