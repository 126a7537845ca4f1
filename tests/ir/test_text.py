"""The textual IR reads back to what was printed, for every op and every form of a module."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridc
from hybridc.ir.dims import LinearDim, add_dims, evaluate_dim, parse_dim, symbol
from hybridc.ir.folding import fold, runs
from hybridc.ir.text import IRSyntaxError, parse_module, print_module

SPECS = {
    "everything": """model m {
      param dim = 64
      let norm = rmsnorm(eps=1e-6)
      block M { x += norm >> mamba2(heads=8, head_dim=16, state=16, groups=2, norm=gated_rmsnorm(groups=2),
        in_scales=(0.5, 1, 1, 1, 2)) }
      block V { x += norm >> mamba() }
      block A(window=none) {
        t = norm >> linear(64, bias=true)
        x += concat(x, t) >> linear(64) >> scale(0.5)
        x += norm >> attention(heads=4, kv_heads=2, rope=rope(theta=1e6, kind=yarn, factor=4),
          window=window, qk_norm=norm)
        x += layernorm() >> moe(experts=4, hidden=32, top_k=2, shared=16, aux_coef=0.01) * 0.5
        x = x * gated_rmsnorm(gate=t)
      }
      shared(2) block S { x += norm >> (geglu(96) | mlp(32, act=relu2)) }
      embed = embedding(320, scale=8)
      layers = (M M V A) * 2 S A(window=16) S S | M * 3
      head = norm >> lm_head(320, tied=true, scale=0.5)
      init = kaiming(depth=false)
    }
    precision {
      default bf16
      fp8(row, bwd=e5m2) on layers[1:-1].** except moe, norm
      fp32 on **.A_log
    }
    mesh { dp = fsdp(4)  ; tp = 2 ; pp = 2 }""",
    "smallest": "model m { embed = embedding(8, 4)\n block A { x += rmsnorm() }\n layers = A\n head = lm_head(8) }",
}


@pytest.mark.parametrize("text", SPECS.values(), ids=SPECS)
def test_round_trip(text):
    module = hybridc.compile(text).ir
    printed = print_module(module)
    assert parse_module(printed) == module
    assert print_module(parse_module(printed)) == printed


@pytest.mark.parametrize("text", ["", "module @m {", "module @m {\n  block\n}", "module @m {\n  dtype fp32\n}"])
def test_what_is_no_ir_is_refused(text):
    with pytest.raises(IRSyntaxError):
        parse_module(text)


@given(st.lists(st.sampled_from("MA*E"), max_size=60))
def test_runs_unfold_to_the_list(names):
    assert [n for unit, count in runs(names) for n in unit * count] == names


def test_folding_finds_the_period():
    assert fold(["M", "M", "M", "A"] * 8) == "(M M M A) * 8"
    assert fold(["H"] * 36) == "H * 36"
    assert fold(["A", "M", "M", "M", "B"]) == "A M * 3 B"
    # Ling 3 and Bamba: what stands before the period is no part of it
    assert fold(["D", "D", *"MMMA", *"MMMMMA" * 6]) == "D * 2 M * 3 A (M M M M M A) * 6"
    assert fold([*"M" * 9, *("A" + "M" * 8) * 2, *"AMMMM"]) == "M (M M M M M M M M A) * 3 M * 4"


dims = st.builds(
    lambda b, s, c: add_dims(add_dims(LinearDim((("B", b),)) if b else 0, LinearDim((("S", s),)) if s else 0), c),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 99),
)


@given(dims, dims)
@settings(max_examples=60)
def test_dims_add_like_numbers_and_print_exactly(a, b):
    sizes = {"B": 7, "S": 11, "T": 77}
    assert evaluate_dim(add_dims(a, b), sizes) == evaluate_dim(a, sizes) + evaluate_dim(b, sizes)
    assert parse_dim(str(a)) == a


def test_a_symbol_is_a_dim():
    assert str(symbol("S")) == "S"
    with pytest.raises(ValueError):
        parse_dim("S*S")
