"""Built models and their texts are one."""

import pytest

import hybridc as hc
from hybridc.diagnostics import DiagnosticError


def test_the_example_of_the_reference():
    m = hc.Model("tiny", dim=64)
    norm = hc.rmsnorm(eps=1e-5)
    H = m.block(
        "H",
        lambda x: x + (norm >> (hc.attention(heads=4) | hc.mamba2(heads=4, state=16))) + (norm >> hc.swiglu(128)),
    )
    m.embed, m.layers, m.head = hc.embedding(256), H * 4, norm >> hc.lm_head(256)
    text = """model tiny {
      param dim = 64
      block H {
        x += rmsnorm(eps=1e-5) >> (attention(heads=4) | mamba2(heads=4, state=16))
        x += rmsnorm(eps=1e-5) >> swiglu(128)
      }
      embed = embedding(256)
      layers = H * 4
      head = rmsnorm(eps=1e-5) >> lm_head(256)
    }"""
    assert m == hc.parse(text)
    assert hc.parse(m.to_spec()) == m
    built, read = hc.compile(m, target="cpu"), hc.compile(text)
    assert built.ir == read.ir and built.source["model.py"] == read.source["model.py"]


def test_everything_else():
    m = hc.Model("all_of_it")
    dim = m.param("dim", 64)
    norm = m.let("norm", hc.rmsnorm())
    A = m.block(
        "A",
        lambda x, x0, window: (
            x + (hc.concat(x, x0) >> hc.linear(64) >> hc.attention(heads=4, window=window).named("attn"))
        ),
        window=None,
    )
    S = m.block("S", lambda x: norm >> (hc.linear(dim) * 0.5 | hc.mlp(32, act="relu2")), shared=2)
    m.embed = hc.embedding(100, dim, scale=-2.5)
    m.layers = hc.seq(A, A(window=8), S) * 2 | S
    m.head = norm >> hc.lm_head(100)
    m.init = hc.normal(std=0.01)
    m.precision(hc.name("bf16"))
    m.precision(hc.fp8("row", fwd="e4m3"), "layers[1:-1].**", "**.A_log", exclude="norm")
    m.mesh = hc.mesh(dp=hc.fsdp(2), cp=hc.dynamic(1, 4), tp=2)
    text = """model all_of_it {
      param dim = 64
      let norm = rmsnorm()
      block A(window=none) {
        x += concat(x, x0) >> linear(64) >> attn: attention(heads=4, window=window)
      }
      shared(2) block S { x = norm >> (linear(dim) * 0.5 | mlp(32, act=relu2)) }
      embed = embedding(100, dim, scale=-2.5)
      layers = (A A(window=8) S) * 2 | S
      head = norm >> lm_head(100)
      init = normal(std=0.01)
    }
    precision {
      default bf16
      fp8(row, fwd=e4m3) on layers[1:-1].**, **.A_log except norm
    }
    mesh { dp = fsdp(2); cp = dynamic(1..4); tp = 2 }"""
    assert m == hc.parse(text)
    assert hc.parse(m.to_spec()) == m


def test_choices_by_layer():
    layer = hc.name("layer")
    m = hc.Model("m", dim=8)
    A = m.block(
        "A", lambda x, layer: x + (hc.rmsnorm() >> hc.attention(heads=2, window=(layer % 2).eq(0).where(4, None)))
    )
    m.embed, m.layers, m.head = hc.embedding(9), A * 4, hc.lm_head(9)
    assert repr((layer % 2).eq(0).where(4, None)) == "4 if layer % 2 == 0 else none"
    assert [b.name for b in hc.compile(m).ir.blocks] == ["A", "A_2"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: hc.attention(heads={}),
        lambda: hc.Model("class"),
        lambda: hc.Model("m", **{"a b": 1}),
        lambda: hc.Model("m").block("print", lambda x: x),
        lambda: bool(hc.rmsnorm()),
        lambda: setattr(hc.Model("m"), "mesh", 3),
        lambda: hc.Model("m").precision(hc.name("bf16"), "layers["),
    ],
)
def test_mistakes_are_diagnostics(wrong):
    with pytest.raises(DiagnosticError):
        wrong()


def test_an_op_that_does_not_exist_is_no_attribute():
    with pytest.raises(AttributeError, match="atention"):
        hc.atention  # noqa: B018


def test_mistakes_in_a_built_model_are_those_of_its_text():
    m = hc.Model("m", dim=64)
    A = m.block("A", lambda x: x + hc.attention(heads=7))
    m.embed, m.layers, m.head = hc.embedding(9), A, hc.lm_head(9)
    with pytest.raises(DiagnosticError, match="HYB201"):
        hc.compile(m)
