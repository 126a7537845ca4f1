"""Every mistake that the checker knows, in the smallest spec that makes it: its code and the text that its span
covers."""

import pytest

import hybridc
from hybridc.diagnostics.codes import CODES

FRAME = """model m {{
  param dim = 64
  let norm = rmsnorm()
  {extra}
  block A({params}) {{
    {body}
  }}
  embed = {embed}
  layers = {layers}
  head = {head}
}}
{tail}
"""


def spec(
    body="x += norm >> swiglu(96)",
    *,
    extra="",
    params="",
    embed="embedding(320)",
    layers="A * 2",
    head="norm >> lm_head(320)",
    tail="",
):
    return FRAME.format(body=body, extra=extra, params=params, embed=embed, layers=layers, head=head, tail=tail)


def found(text):
    """(code, severity, spanned text) of each diagnostic."""
    sink = hybridc.check(text)
    return [(d.code, d.severity, text[d.span.start : d.span.end] if d.span.file else "") for d in sink.diagnostics]


def test_the_frame_itself_is_right():
    assert found(spec()) == []


ERRORS = [
    (spec("x += norm >> swiglu(a)", extra="let a = a"), "HYB124", "let a = a"),
    (spec("x += l: a", extra="let a = b\n  let b = a"), "HYB124", None),
    (spec(extra="let P = (P A)", layers="P"), "HYB124", None),
    (spec("x += to >> swiglu(96)", extra="let to = rmsnorm()"), "HYB108", "to"),
    (spec("x += norm >> half", params="half", layers="A(mlp(5))"), "HYB108", "half"),
    (spec(extra="block self { x += norm }", layers="A self"), "HYB108", None),
    (spec("x += norm >> swiglu(((1, 2), 3))"), "HYB111", None),
    (spec(head="attention(heads=4) >> lm_head(320)"), "HYB213", None),
    (spec(embed="embedding(320) >> moe(experts=2, hidden=8, top_k=1)"), "HYB213", None),
    (spec(embed="embedding(320) >> lm_head(64, tied=true)"), "HYB209", None),
    (spec(extra="shared block S { x = rmsnorm() >> linear(96) }", layers="S S"), "HYB135", None),
    (
        spec(head="norm >> lm_head(320, tied=true)", tail="precision { bitnet(packed) on lm_head }"),
        "HYB309",
        "bitnet(packed) on lm_head",
    ),
    (spec("x += norm >> attention(heads=4, rope=rope(kind=yarn, theta=1, factor=4))"), "HYB112", None),
    (spec("x += norm >> own(swiglu(8))"), "HYB136", "own(swiglu(8))"),
    (spec(extra="shared block S { x += own(norm, norm) }", layers="A S"), "HYB110", "own(norm, norm)"),
    (spec("x += norm >> attention(heads=4, sinks=true, adapter=lora(2))"), "HYB221", None),
    (spec("x += norm >> moe(experts=2, hidden=8, top_k=1, shared_bias=true)"), "HYB221", None),
    (spec("x += norm >> moe(experts=2, hidden=8, top_k=1, latent_bias=true)"), "HYB221", None),
    (spec("x += norm >> lora(2)"), "HYB116", None),
    (spec(extra="shared(0) block S { x += norm >> swiglu(8) }", layers="A S S"), "HYB112", None),
    # names
    (spec("x += nrom >> swiglu(96)"), "HYB101", "nrom"),
    (spec("x += norm >> atention(heads=4)"), "HYB102", "atention(heads=4)"),
    (spec("x += norm >> attention"), "HYB102", "attention"),
    (spec("x += norm >> A()"), "HYB102", "A()"),
    (spec("t = norm\n    t = norm\n    x += t"), "HYB103", "t = norm"),
    (spec(extra="let norm = layernorm()"), "HYB103", "let norm = layernorm()"),
    (spec(extra="block A { x += norm >> swiglu(3) }"), "HYB103", None),
    (spec("x += norm >> (f: linear(64) | f: linear(64))"), "HYB103", "f: linear(64)"),
    (spec("x += norm >> forward: swiglu(96)"), "HYB108", "forward: swiglu(96)"),
    (spec("x += norm >> __class__: swiglu(96)"), "HYB108", None),
    (spec("x += norm >> lambda: swiglu(96)"), "HYB108", None),
    (spec("self = norm\n    x += self"), "HYB108", None),
    (spec("torch = norm\n    x += torch"), "HYB108", None),
    (spec(extra="block print { x += norm }", layers="A print"), "HYB108", None),
    (spec(extra="block Model { x += norm }", layers="A Model"), "HYB108", None),
    (spec("x += norm >> attention(heads=4, kvheads=2)"), "HYB109", "kvheads=2"),
    (spec("x += norm >> swiglu(96, act=gelu)"), "HYB109", "act=gelu"),
    (spec("x += norm >> attention(head_dim=16)"), "HYB110", "attention(head_dim=16)"),
    (spec(layers="A(w=1)"), "HYB109", "w=1"),
    (spec("x += norm >> attention(heads=w)", params="w", layers="A"), "HYB110", "A"),
    (spec("x += norm >> attention(heads=2.5)"), "HYB111", "heads=2.5"),
    (spec("x += norm >> attention(heads=true)"), "HYB111", "heads=true"),
    (spec('x += norm >> attention(heads="4")'), "HYB111", None),
    (spec("x += norm >> attention(heads=4, rope=norm)"), "HYB111", "rope=norm"),
    (spec("x += norm >> attention(heads=0)"), "HYB112", "heads=0"),
    (spec("x += norm >> attention(heads=-4)"), "HYB112", "heads=-4"),
    (spec("x += norm >> mlp(96, act=sillu)"), "HYB113", "act=sillu"),
    (spec("x += norm >> scale(1, 2)"), "HYB114", "2"),
    (spec("x += norm >> scale(1, factor=2)"), "HYB115", "factor=2"),
    (spec("x += 3"), "HYB116", "3"),
    (spec("x += norm >> rope()"), "HYB116", "rope()"),
    (spec(layers="A * norm"), "HYB117", None),
    (spec("t = norm\n    x += norm >> t"), "HYB118", "t"),
    (spec("t = norm\n    t += norm\n    x += t"), "HYB119", "t += norm"),
    (spec(layers="(A * 100000) * 100000"), "HYB120", "(A * 100000) * 100000"),
    (spec("x += norm >> swiglu(96 / 0)"), "HYB121", "96 / 0"),
    ("model m { }", "HYB122", None),
    ("let norm = rmsnorm()", "HYB122", None),
    # patterns
    (spec(layers="A * 0"), "HYB130", "A * 0"),
    (spec(layers='pattern("AXA", A=A)'), "HYB131", "X"),
    (spec(layers='pattern("A", AB=A)'), "HYB131", "AB=A"),
    (spec(layers="A | | A"), "HYB001", None),
    (spec(layers='pattern("A||A", A=A)'), "HYB132", None),
    (spec(layers='pattern("A|", A=A)'), "HYB132", None),
    (spec(layers="A * (1 - 3)"), "HYB133", "1 - 3"),
    (spec(layers="swiglu(96) * 2"), "HYB134", "swiglu(96)"),
    (spec(layers="dim * 2"), "HYB134", "dim"),
    (spec(layers="B * 2"), "HYB101", "B"),
    # shapes
    (spec("x += norm >> attention(heads=7)"), "HYB201", "heads=7"),
    (spec("x += norm >> attention(heads=8, kv_heads=3)"), "HYB202", "kv_heads=3"),
    (spec("x += norm >> attention(heads=4, head_dim=15, rope=rope())"), "HYB203", "rope=rope()"),
    (spec("x += norm >> attention(heads=4, rope=rope(partial=0.06))"), "HYB203", None),
    (spec("x += norm >> mamba2(heads=6, groups=4)"), "HYB204", "groups=4"),
    (spec("x += norm >> linear(32)"), "HYB205", None),
    (spec("z = norm >> linear(96)\n    x += gated_rmsnorm(gate=z)"), "HYB205", None),
    (spec("x += gated_rmsnorm(gate=x, groups=3)"), "HYB206", "groups=3"),
    (spec("x += norm >> rg_lru(blocks=7)"), "HYB206", "blocks=7"),
    (spec("x += norm >> moe(experts=4, hidden=32, top_k=5)"), "HYB207", "top_k=5"),
    (spec(embed="rmsnorm()"), "HYB208", None),
    (spec("x += embedding(320)"), "HYB208", "embedding(320)"),
    (spec(head="norm"), "HYB209", None),
    (spec(head="norm >> lm_head(300, tied=true)"), "HYB210", "tied=true"),
    # single ops
    (spec("x += norm >> attention(heads=4, dropout=1)"), "HYB112", "dropout=1"),
    (spec("x += norm >> attention(heads=4, head_dim=6, rope=rope(partial=1.4))"), "HYB203", "rope=rope(partial=1.4)"),
    (spec("x += norm >> attention(heads=8, rope=rope(kind=longrope, short=(1, 1, 1, 1)))"), "HYB203", None),
    (spec("x += norm >> attention(heads=32, rope=rope(kind=longrope, short=(1,), long=(-1,)))"), "HYB203", None),
    (spec("x += norm >> attention(heads=32, rope=rope(kind=longrope, short=(1, 2), long=(1,)))"), "HYB203", None),
    (spec("x += norm >> attention(heads=4, scale=0)"), "HYB112", "scale=0"),
    (spec("x += norm >> dropout(1)"), "HYB112", "1"),
    (spec("x += norm >> gated_delta_net(heads=4, key_heads=3)"), "HYB202", "key_heads=3"),
    (spec("x += norm >> gated_delta_net(heads=4, dt_min=0.2)"), "HYB112", None),
    (spec("x += norm >> gated_delta_net(heads=4, key_dim=6, norm=gated_rmsnorm(groups=4))"), "HYB206", None),
    (spec("x += norm >> kda(heads=4, lower_bound=0.5)"), "HYB112", "lower_bound=0.5"),
    (spec("x += norm >> kda(heads=4, dt_max=0.001)"), "HYB112", "dt_max=0.001"),
    (spec("x += norm >> kda(heads=4, head_dim=6, norm=gated_rmsnorm(groups=4))"), "HYB206", None),
    (spec("x += norm >> lightning_attention(heads=5)"), "HYB201", "heads=5"),
    (spec("x += norm >> mamba(dt_min=0.1)"), "HYB112", None),
    (spec("x += norm >> mamba2(heads=4, dt_limit=(0.5, 0.1))"), "HYB112", "dt_limit=(0.5, 0.1)"),
    (spec("x += norm >> mamba2(heads=4, dt_min=0.1)"), "HYB112", None),
    (spec("x += norm >> mamba2(heads=4, head_dim=6, norm=gated_rmsnorm(groups=5))"), "HYB206", None),
    (spec("x += norm >> mla(heads=2, kv_rank=8, nope_dim=4, rope_dim=4, dropout=1.5)"), "HYB112", "dropout=1.5"),
    (spec("x += norm >> mla(heads=2, kv_rank=8, nope_dim=4, rope_dim=3, rope=rope())"), "HYB203", "rope=rope()"),
    (spec("x += norm >> mla(heads=2, kv_rank=8, nope_dim=4, rope_dim=4, rope=rope(partial=0.2))"), "HYB203", None),
    (spec("x += norm >> mla(heads=2, kv_rank=8, nope_dim=4, rope_dim=1, rope=rope(kind=longrope))"), "HYB203", None),
    (spec("x += norm >> moe(experts=4, hidden=8, top_k=1, groups=3)"), "HYB207", "groups=3"),
    (spec("x += norm >> moe(experts=4, hidden=8, top_k=1, groups=2, top_groups=3)"), "HYB207", "top_groups=3"),
    (spec("x += norm >> moe(experts=4, hidden=8, top_k=1, groups=4, top_groups=1)"), "HYB207", "groups=4"),
    (spec("x += norm >> moe(experts=4, hidden=8, top_k=3, groups=2, top_groups=1)"), "HYB207", "top_k=3"),
    (spec("x += norm >> moe(experts=2, hidden=8, top_k=1, act=gelu, beta=2)"), "HYB221", "beta=2"),
    (spec("x += norm >> moe(experts=2, hidden=8, top_k=1, gated=false, limit=2)"), "HYB221", "limit=2"),
    (spec("x += norm >> moe(experts=2, hidden=8, top_k=1, gated=false, up_offset=1)"), "HYB221", "up_offset=1"),
    (spec("x += norm >> moe(experts=2, hidden=8, top_k=1, shared_gate=true)"), "HYB221", "shared_gate=true"),
    (spec("x += rmsnorm(affine=false, zero_centered=true)"), "HYB221", "zero_centered=true"),
    (spec("x += norm >> rg_lru(blocks=5)"), "HYB206", "blocks=5"),
    (spec("x += norm >> short_conv(conv=1)"), "HYB112", "conv=1"),
    # mesh
    (spec("x += norm >> attention(heads=9, kv_heads=3, head_dim=16)", tail="mesh { tp = 2 }"), "HYB214", "heads=9"),
    (spec(tail="mesh { tp = 5 }"), "HYB215", "96"),
    (spec(tail="mesh { tp = 2 }\nprecision { fp8(mx) on mlp.down }"), "HYB310", "swiglu(96)"),
    (spec(tail="mesh { tp = 2 }\nprecision { bitnet(packed) on mlp.gate_up }"), "HYB311", "swiglu(96)"),
    (spec(layers="A | A | A", tail="mesh { pp = 2 }"), "HYB217", "pp = 2"),
    (spec(tail="mesh { pp = 8 }"), "HYB217", "pp = 8"),
    (spec(tail="mesh { sp = 2 }"), "HYB218", "sp = 2"),
    (spec(tail="mesh { tp = 0 }"), "HYB219", "0"),
    (spec(tail="mesh { dp = sdp(4) }"), "HYB219", "sdp(4)"),
    (spec(tail="mesh { cp = dynamic(8..1) }"), "HYB219", None),
    # precision
    (spec(tail="precision { bf16 on layers[0].atn }"), "HYB301", None),
    (spec(tail="precision { bf16 on rooter }"), "HYB301", None),
    (spec(tail="precision { bf16 on layers[7].swiglu }"), "HYB302", None),
    (spec(tail="precision { bf16 on layers[2:2].swiglu }"), "HYB302", None),
    (spec(tail="precision { bf16 on head[0].norm }"), "HYB303", None),
    (spec(tail="precision { fp8(blok128) on swiglu }"), "HYB304", None),
    (spec(tail="precision { fp9 on swiglu }"), "HYB304", "fp9"),
    (spec(tail="precision { default fp8(row) }"), "HYB304", "fp8(row)"),
]


@pytest.mark.parametrize(("text", "code", "spanned"), ERRORS, ids=[f"{c}-{i}" for i, (_, c, _) in enumerate(ERRORS)])
def test_error(text, code, spanned):
    errors = [f for f in found(text) if f[1] == "error"]
    assert code in [f[0] for f in errors], errors
    if spanned is not None:
        assert (code, "error", spanned) in errors


WARNINGS = [
    (
        spec(
            "x += norm >> attention(heads=4, kv_heads=2, head_dim=16)",
            tail="mesh { tp = 2 }\nprecision { fp8(mx) on qkv }",
        ),
        "HYB312",
    ),
    (spec(tail="mesh { ep = 4 }"), "HYB216"),
    (spec(tail="precision { fp32 on **.router }"), "HYB306"),
    (spec(tail="precision { bitnet on rmsnorm }"), "HYB308"),
    (spec(tail="precision { bitnet on swiglu; bf16 on swiglu }"), "HYB308"),
    (spec(extra="param depth = 3"), "HYB104"),
    (spec(params="w=3"), "HYB104"),
    (spec(extra="block B { x += norm }"), "HYB105"),
    (spec(extra="let other = layernorm()"), "HYB106"),
    (spec("t = norm\n    x += norm >> swiglu(96)"), "HYB107"),
    (spec(head="norm >> lm_head(400)"), "HYB211"),
    (spec(layers='pattern("A", A=A, B=A)'), "HYB131"),
]


@pytest.mark.parametrize(("text", "code"), WARNINGS, ids=[c for _, c in WARNINGS])
def test_warning(text, code):
    assert [f[:2] for f in found(text)] == [(code, "warning")]


COMPILED = [
    (spec(tail="mesh { cp = 2 }"), "HYB220", "warning"),
    (spec(tail="precision { bf16 on layers[0].swiglu }"), "HYB305", "warning"),
    (spec(extra="mtp = A"), "HYB212", "error"),
    (
        spec(
            extra="shared block S { x += norm >> swiglu(8) }", layers="A S S", tail="precision { bitnet on layers[1] }"
        ),
        "HYB307",
        "error",
    ),
]


@pytest.mark.parametrize(("text", "code", "severity"), COMPILED, ids=[c for _, c, _ in COMPILED])
def test_what_the_compiler_adds(text, code, severity):
    if severity == "warning":
        assert [d.code for d in hybridc.compile(text).warnings] == [code]
        return
    with pytest.raises(hybridc.DiagnosticError) as caught:
        hybridc.compile(text)
    assert [d.code for d in caught.value.diagnostics if d.severity == "error"] == [code]


def test_every_code_of_the_language_is_made_by_some_spec():
    made = {code for _, code, *_ in [*ERRORS, *WARNINGS, *COMPILED]}
    assert {c for c in CODES if c[3] in "123"} - made == set()


def test_all_errors_of_a_file_come_at_once():
    text = spec("x += nrom >> swiglu(96)\n    x += norm >> atention(heads=4)", head="norm >> lm_hed(320)")
    assert {f[0] for f in found(text)} >= {"HYB101", "HYB102"}
    assert len([f for f in found(text) if f[1] == "error"]) == 3


def test_did_you_mean():
    helps = [d.help for d in hybridc.check(spec("x += norm >> atention(heads=4)")).diagnostics]
    assert any("`attention`" in h for h in helps)


def test_every_code_is_explained():
    for code, entry in CODES.items():
        assert entry.title and entry.explanation, code


@pytest.mark.parametrize(
    "bomb",
    [
        "\n".join(["let a0 = norm >> norm"] + [f"let a{i} = a{i - 1} >> a{i - 1}" for i in range(1, 40)]),
        "\n".join(["let a0 = (A A)"] + [f"let a{i} = (a{i - 1} a{i - 1})" for i in range(1, 40)]),
        "\n".join(["let a0 = 2"] + [f"let a{i} = a{i - 1} * a{i - 1}" for i in range(1, 40)]),
    ],
)
def test_a_spec_that_doubles_itself_ends_in_a_diagnostic(bomb):
    body, layers = "x += norm >> a39", "a39"
    codes = {f[0] for text in (spec(body, extra=bomb), spec(extra=bomb, layers=layers)) for f in found(text)}
    assert codes & {"HYB120", "HYB121"}


def test_what_could_not_be_read_is_not_said_to_be_missing():
    text = spec(embed="embedding(320", extra="let two = layernorm()\n  param w = 3")
    assert {f[0] for f in found(text)} == {"HYB001"}
    assert [d.code for d in hybridc.check("nowhere.hyb").diagnostics] == ["HYB400"]


def test_a_name_in_a_wrong_statement_counts_as_used():
    text = spec("x += nrom >> two", extra="let two = layernorm()")
    assert [f[0] for f in found(text)] == ["HYB101"]


def test_a_long_chain_of_lets_ends_in_a_diagnostic():
    chain = "let a0 = 1\n" + "\n".join(f"  let a{n} = a{n - 1} + 0" for n in range(1, 3000))
    assert "HYB120" in [f[0] for f in found(spec("x += norm >> swiglu(a2999)", extra=chain))]


def test_tuples_that_double_end_in_a_diagnostic():
    chain = "let a0 = (1, 2)\n" + "\n".join(f"  let a{n} = (a{n - 1}, a{n - 1})" for n in range(1, 31))
    assert "HYB111" in [f[0] for f in found(spec("x += norm >> linear(a30)", extra=chain))]


def test_a_label_keeps_its_name_wherever_it_stands():
    module = hybridc.compile(spec("x += linear(64)\n    x += linear: mlp(3)")).ir
    assert [n.path for n in module.blocks[0].nodes if n.path] == ["linear_2", "linear"]


NAMES = [
    ("block order { x += norm }", "[order if i * i * i % 7 > 3 else A for i in 0..40]"),
    ("shared block S { x += norm }\n  block shared_S_0 { x += norm }", "A S shared_S_0"),
    ("block Language { x += Model: mlp(32) }", "A Language"),
    ("block RO { x += PE: attention(heads=4, rope=rope()) }", "A RO"),
]


@pytest.mark.parametrize(("extra", "layers"), NAMES)
def test_names_that_meet_in_emitted_code_do_not_collide(extra, layers):
    import torch

    net = hybridc.compile(spec(extra=extra, layers=layers)).load()
    assert net(torch.zeros(1, 3, dtype=torch.int64)).logits.shape == (1, 3, 320)
