"""Griffin's recurrent block as it is emitted, and its unit by itself, against the paper's formulae in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import CPU, PIECES, borders, close, gradients, made, packed, plain
from tests.runtime.ops.emitted import check_gradients, check_packed, check_pieces, check_ragged, layer

OPS = {
    "rg_lru(blocks=2)": {},
    "rg_lru(blocks=3, inner=6, conv=2, act=silu, conv_bias=false)": {"act": torch.nn.functional.silu},
    "rg_lru(blocks=1, c=2.5, proj_bias=false)": {"c": 2.5},
}
LAYERS = {op: layer(op) for op in OPS}
layers = pytest.mark.parametrize("op", OPS)


def unit(x, i, r, rate, c=8.0, state=None):
    """a_t = a^(c r_t) and h_t = a_t h_{t-1} + sqrt(1 - a_t²) (i_t x_t) with the sigmoids of gates i and r (De et al.,
    2024, eqs. 1 to 4). As in the published code a is σ(-Λ), and h_1 = i_1 x_1 without a state. [S, D] -> h [S, D]."""
    hs = []
    for t in range(x.shape[0]):
        a = torch.sigmoid(-rate) ** (c * torch.sigmoid(r[t]))
        if t == 0 and state is None:
            h = torch.sigmoid(i[t]) * x[t]
        else:
            h = a * (state if t == 0 else hs[-1]) + torch.sqrt(1 - a**2) * torch.sigmoid(i[t]) * x[t]
        hs.append(h)
    return torch.stack(hs)


def block(op):
    """The recurrent block of the paper's figure 2c as a function of x [S, D] and the parameters."""
    c = OPS[op].get("c", 8.0)
    act = OPS[op].get("act", lambda y: torch.nn.functional.gelu(y, approximate="tanh"))

    def function(x, **w):
        y, u = (x @ w["in_proj_weight"].T + w.get("in_proj_bias", 0.0)).chunk(2, dim=-1)
        v = ref.conv(u, w["conv_weight"], w.get("conv_bias"))
        i, r = (
            v @ torch.block_diag(*w[f"{gate}_weight"]).T + w[f"{gate}_bias"].reshape(-1)
            for gate in ("input_gate", "recurrence_gate")
        )
        return (act(y) * unit(v, i, r, w["Lambda"], c)) @ w["out_proj_weight"].T + w.get("out_proj_bias", 0.0)

    return function


@given(borders, st.sampled_from(sorted(OPS)))
@settings(max_examples=30)
def test_packed_documents(borders, op):
    check_packed(LAYERS[op], block(op), borders)


@layers
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_cache_filled_in_pieces(pieces, op):
    check_pieces(LAYERS[op], block(op), pieces)


@layers
def test_a_cache_of_rows_of_different_length(op):
    check_ragged(LAYERS[op], block(op))


@layers
@pytest.mark.parametrize("border", [[0, 9], [0, 1, 3, 12]], ids=str)
def test_gradients_of_the_block(border, op):
    check_gradients(LAYERS[op], block(op), border)


def inputs(rows, length, dim=5):
    return *(made(n, rows, length, dim) for n in (1, 2, 3)), made(4, dim) - 1


def one(given, row, s=None, e=None):
    """A document's inputs out of a batch's, in float64."""
    *tokens, rate = (t.double() for t in given)
    return *(t[row, s:e] for t in tokens), rate


@pytest.mark.parametrize("length", [1, 2, 32, 33, 64, 200])
def test_any_length(length):
    given = inputs(2, length)
    h = ops.rg_lru(*given, plain(2, length))
    for row in range(2):
        close(h[row], unit(*one(given, row)))


def test_rows_of_which_one_is_new():
    """A document that goes on does not start anew, whatever its neighbours do: in plain rows and in a packed one."""
    given, before = inputs(2, 9), made(8, 2, 5)
    for context in (plain, packed):
        state = ops.MambaState(2, conv=(1, 2), ssm=(5,), device=CPU, dtype=torch.float32)
        state.ssm[0] = before[0]
        cache = Cache([{"op": state}], 2, 20)
        cache.lengths = [7, 0]
        with torch.no_grad():
            if context is plain:
                h = ops.rg_lru(*given, plain(2, 9, cache), state)
            else:
                row = [t.reshape(1, 18, 5) for t in given[:3]]
                h = ops.rg_lru(*row, given[3], packed([0, 9, 18], cache), state).view(2, 9, 5)
        want = [unit(*one(given, 0), state=before[0].double()), unit(*one(given, 1))]
        for n in range(2):
            close(h[n], want[n])
            close(state.ssm[n], want[n][-1])


def test_rows_without_a_token_keep_their_state():
    given, before = inputs(1, 40), made(8, 3, 5)
    state = ops.MambaState(3, conv=(1, 2), ssm=(5,), device=CPU, dtype=torch.float32)
    state.ssm.copy_(before)
    cache = Cache([{"op": state}], 3, 50)
    cache.lengths = [2, 3, 4]
    with torch.no_grad():
        h = ops.rg_lru(*given, packed([0, 35, 35, 40], cache), state)
    close(h[0, :35], unit(*one(given, 0, 0, 35), state=before[0].double()))
    close(h[0, 35:], unit(*one(given, 0, 35, 40), state=before[2].double()))
    assert torch.equal(state.ssm[1], before[1])


@pytest.mark.parametrize("border", [[0, 1, 9, 50], [0, 100], [0, 2, 70, 71]], ids=str)
def test_gradients_of_the_unit(border):
    given = inputs(1, border[-1], dim=3)
    got = gradients(lambda *i: ops.rg_lru(*i, packed(border)), given)

    def sequential(x, i, r, rate):
        return torch.cat([unit(x[0, s:e], i[0, s:e], r[0, s:e], rate) for s, e in ref.documents(border)])[None]

    for g, w in zip(got, gradients(sequential, [i.double() for i in given]), strict=True):
        close(g, w)


def test_derivatives_by_differences():
    """fp64 all through, against central differences, over two chunks."""
    given = [i.double().requires_grad_() for i in inputs(1, 40, dim=2)]
    assert torch.autograd.gradcheck(lambda *i: ops.rg_lru(*i, plain(1, 40)), given)


def test_a_decay_of_one_has_a_bounded_derivative():
    """d sqrt(z) / dz is held at 1000 where it is more (the published code's limit): with a ~ 1, the derivative of
    h_2 = a h_1 + sqrt(1 - a²) σ(i) x by Λ is that of a by h_1, and 1000 · d(1 - a²)/dΛ · σ(i) x."""
    x, i, r = (t.double() for t in inputs(1, 2, dim=1)[:3])
    for value in (-30.0, -800.0):
        rate = torch.tensor([value], dtype=torch.float64, requires_grad=True)
        h = ops.rg_lru(x, i, r, rate, plain(1, 2))
        h[0, 1].sum().backward()
        slope = 8 * r[0, 1].sigmoid() * torch.sigmoid(rate.detach())
        want = -slope * h[0, 0].detach() + 1000 * 2 * slope * i[0, 1].sigmoid() * x[0, 1]
        torch.testing.assert_close(rate.grad, want, rtol=1e-6, atol=0.0)


def test_block_linear_is_a_block_diagonal_matrix():
    module = ops.BlockLinear(12, 3)
    assert module.weight.std().item() == pytest.approx(0.5, rel=0.3) and not module.bias.any()
    with torch.no_grad():
        module.bias.normal_()
    x = made(1, 2, 7, 12)
    weight, bias = torch.block_diag(*module.weight).double(), module.bias.reshape(-1).double()
    close(module(x), (x.double() @ weight.T + bias).detach())


def test_half_precision_keeps_the_state_in_single():
    given = [t.bfloat16() for t in inputs(1, 30)]
    state = ops.MambaState(1, conv=(1, 2), ssm=(5,), device=CPU, dtype=torch.bfloat16)
    h = ops.rg_lru(*given, plain(1, 30, Cache([{"op": state}], 1, 30)), state)
    want = unit(*one(given, 0))
    assert h.dtype == torch.bfloat16 and state.ssm.dtype == torch.float32
    close(h[0], want, 4e-3)
    close(state.ssm[0], want[-1])
