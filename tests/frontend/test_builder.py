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
        lambda: hc.Model("m").precision("fp32", "a }\nmodel n {"),
        lambda: hc.Model("m").precision("fp32", "a except b"),
        lambda: hc.Model("m").precision("fp32", 3),
        lambda: hc.Model("m").precision("bf16", exclude="norm"),
        lambda: setattr(hc.Model("m"), "layrs", 3),
        lambda: hc.Model("model"),
        lambda: hc.Model(3),
        lambda: hc.Model("m").let("inf", 1),
        lambda: hc.Model("m").param("on", 1),
        lambda: hc.mesh(**{"a b": 1}),
        lambda: hc.mlp(8, **{"a=1, b": 1}),
        lambda: hc.rmsnorm().named("a b"),
        lambda: hc.name("a) >> b("),
        lambda: hc.scale(float("nan")),
        lambda: hc.mlp(10**400),
        lambda: hc.mlp(8, act="\x1b[31m"),
        lambda: hc.mlp(()),
        lambda: hc.mlp(range(0, 4, 2)),
        lambda: hc.seq(),
        lambda: hc.pattern(3),
        lambda: hc.Model("m").block("A", 3),
        lambda: hc.Model("m").block("A", lambda: 3),
        lambda: hc.Model("m").block("A", lambda x: None),
        lambda: hc.Model("m").block("A", lambda x, x0, windw: x, window=4),
        lambda: hc.Model("m").block("A", lambda x: x, shared=0),
        lambda: hc.Model("m").block("A", lambda x: x, shared="yes"),
        lambda: hc.Model("m").block("A", lambda x: x, **{"a b": 1}),
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


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: hc.mlp(8, act="if"), 'mlp(8, act="if")'),
        (lambda: hc.mlp(8, act="true"), 'mlp(8, act="true")'),
        (lambda: hc.mlp(8, act="inf"), 'mlp(8, act="inf")'),
        (lambda: hc.mlp(8, act="relu2", gated=True, bias=None), "mlp(8, act=relu2, gated=true, bias=none)"),
        (lambda: hc.moe(experts=2, shared=3), "moe(experts=2, shared=3)"),
        (lambda: hc.scale(-1e-9), "scale(-1e-9)"),
        (lambda: hc.scale(-0.0), "scale(-0.0)"),
        (lambda: hc.scale(float("-inf")), "scale(-inf)"),
        (lambda: hc.mamba2(heads=4, dt_limit=(0.0, float("inf"))), "mamba2(heads=4, dt_limit=(0.0, inf))"),
        (lambda: 3 - hc.name("dim"), "3 - dim"),
        (lambda: 3 / hc.name("dim") // 2 % 5, "3 / dim // 2 % 5"),
        (lambda: 3 // hc.name("dim") + 3 % hc.name("dim"), "3 // dim + 3 % dim"),
        (lambda: (hc.name("a") + 1) * -hc.name("b"), "(a + 1) * -b"),
        (lambda: hc.name("a").eq(1).and_(hc.name("b").ne(2)).or_(hc.name("c").not_()), "a == 1 and b != 2 or not c"),
        (lambda: (hc.name("a") <= 1).where(2, hc.name("a") > 3), "2 if a <= 1 else a > 3"),
        (lambda: "x" >> hc.rmsnorm(), "x >> rmsnorm()"),
        (lambda: "A" | hc.name("B") * 2, "A | B * 2"),
        (lambda: hc.rmsnorm() >> (hc.scale(1) >> hc.scale(2)), "rmsnorm() >> scale(1) >> scale(2)"),
        (lambda: hc.rmsnorm() | (hc.scale(1) | hc.scale(2)), "rmsnorm() | (scale(1) | scale(2))"),
        (lambda: (hc.rmsnorm() >> hc.scale(2)).named("a"), "a: (rmsnorm() >> scale(2))"),
        (lambda: hc.pattern("MM-", {"-": hc.name("B")}, M=hc.name("A")), 'pattern("MM-", M=A, "-"=B)'),
        (lambda: hc.pattern("MMA", M="M", A="A"), 'pattern("MMA", M=M, A=A)'),
        (lambda: hc.dynamic(1, 8), "dynamic(1..8)"),
        (lambda: hc.linear(range(-1, 4)), "linear(-1..4)"),
        (lambda: hc.linear(["A", "B"]), "linear([A, B])"),
        (lambda: hc.linear('a\tb\n"\\'), 'linear("a\\tb\\n\\"\\\\")'),
    ],
)
def test_python_values_and_their_text(make, text):
    assert repr(make()) == text
    m = hc.Model("m")
    m.let("v", make())
    assert m == hc.parse(f"model m {{ let v = {text} }}") == hc.parse(m.to_spec())


def test_numbers_of_numpy_are_numbers():
    import numpy

    assert hc.mlp(numpy.int64(8)) == hc.mlp(8) and hc.scale(numpy.float32(0.5)) == hc.scale(0.5)


def test_what_the_function_of_a_block_may_ask_for():
    m = hc.Model("m")
    m.block("A", lambda x, embedded: x + hc.concat(x, embedded))
    m.block("B", lambda x, window, layer, x0, rest=3: x + hc.linear(rest) + hc.linear(window), window=...)
    m.block("C", lambda x, **params: x + hc.linear(params["a"]) + hc.linear(params["b"]), a=1, b=2)
    m.block("D", lambda x, /, e, *, w: (hc.rmsnorm() >> hc.linear(w)) + x + e, shared=True, w="none")
    m.block("E2", lambda x: x + (hc.linear(1) + hc.linear(2)), shared=False)
    text = """model m {
      block A { x += concat(x, x0) }
      block B(window) { x += linear(3); x += linear(window) }
      block C(a=1, b=2) { x += linear(a); x += linear(b) }
      shared block D(w="none") { x = (rmsnorm() >> linear(w)) + x + x0 }
      block E2 { x += linear(1) + linear(2) }
    }"""
    assert m == hc.parse(text) == hc.parse(m.to_spec())


def test_parts_can_be_set_again_and_read():
    m = hc.Model("m")
    m.embed = hc.embedding(9)
    m.embed = hc.embedding(10)
    m.mesh = hc.mesh(tp=2)
    assert m.embed == hc.embedding(10) and m.mesh == hc.mesh(tp=2)
    m.name, m.mesh = "n", None
    m.precision = "bf16"
    m.precision("fp32", "**.shared.down", exclude=["norm", "layers[0]"])
    again = hc.Model("n")
    again.embed = hc.embedding(10)
    again.precision = ["bf16", hc.rule("fp32", "**.shared.down", exclude=["norm", "layers[0]"])]
    assert m == again
    assert m == hc.parse(
        "model n { embed = embedding(10) }\nprecision { default bf16; fp32 on **.shared.down except norm, layers[0] }"
    )
    m.precision = None
    assert m == hc.parse("model n { embed = embedding(10) }") and m != hc.Model("n")
    with pytest.raises(AttributeError, match="no `head` yet"):
        m.head  # noqa: B018


def test_what_a_block_raises_is_the_callers_own():
    with pytest.raises(ZeroDivisionError):
        hc.Model("m").block("A", lambda x: x + 1 / 0)


def test_deep_expressions_are_refused_and_many_sublayers_are_not():
    m = hc.Model("m")
    x = many = hc.name("x")
    for _ in range(300):
        x, many = -x, many + hc.rmsnorm()
    m.block("A", lambda x: many)
    assert m == hc.parse(m.to_spec())
    m.let("deep", x)
    with pytest.raises(DiagnosticError, match="HYB002"):
        m.to_spec()


def test_the_builder_loads_neither_torch_nor_the_parser():
    import subprocess
    import sys

    code = "import sys, hybridc as hc; hc.Model('m').let('a', hc.rmsnorm() >> hc.scale(2)); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "sympy", "pydantic", "lark", "numpy"} & set(loaded)
