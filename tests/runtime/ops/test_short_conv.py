"""The gated short convolution as it is emitted, against its formula in float64."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import PIECES, borders
from tests.runtime.ops.emitted import check_gradients, check_packed, check_pieces, check_ragged, layer

OPS = ["short_conv()", "short_conv(conv=2)", "short_conv(conv=5, bias=true)"]
LAYERS = {op: layer(op) for op in OPS}
layers = pytest.mark.parametrize("op", OPS)


def short_conv(x, in_proj_weight, conv_weight, out_proj_weight, in_proj_bias=0.0, conv_bias=None, out_proj_bias=0.0):
    """out(C · conv(B · u)), with B, C and u the parts of one projection of x [S, D] (LFM2 technical report, 2025)."""
    b, c, u = (x @ in_proj_weight.T + in_proj_bias).chunk(3, dim=-1)
    return (c * ref.conv(b * u, conv_weight, conv_bias)) @ out_proj_weight.T + out_proj_bias


@given(borders, st.sampled_from(OPS))
@settings(max_examples=30)
def test_packed_documents(borders, op):
    check_packed(LAYERS[op], short_conv, borders)


@layers
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_a_cache_filled_in_pieces(pieces, op):
    check_pieces(LAYERS[op], short_conv, pieces)


@layers
def test_a_cache_of_rows_of_different_length(op):
    check_ragged(LAYERS[op], short_conv)


@layers
@pytest.mark.parametrize("border", [[0, 9], [0, 1, 3, 12]], ids=str)
def test_gradients(border, op):
    check_gradients(LAYERS[op], short_conv, border)
