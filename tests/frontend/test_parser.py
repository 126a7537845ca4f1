"""Syntax: what parses to what, and where mistakes are found."""

from pathlib import Path

import pytest

import hybridc
from hybridc.diagnostics import DiagnosticError, Sink
from hybridc.frontend import ast
from hybridc.frontend.parser import parse

ROOT = Path(__file__).parents[2]


def value(text):
    return parse(f"let v = {text}").members[0].value


def test_the_file_of_the_language_reference_checks():
    """language.md's whole example (its ep axis has nothing to cut in a model without experts)."""
    text = """
    # Falcon-H1 0.5B: attention and Mamba-2 side by side in every block.
    model falcon_h1_0_5b {
      param dim   = 1024                 # a param can be overridden: --set dim=64
      param depth = 36
      let norm = rmsnorm(eps=1e-5)       # a let is a name for an expression

      block H {
        x += norm >> ( attn: attention(heads=8, kv_heads=2, head_dim=64, rope=rope(theta=1e11), key_scale=0.39)
                     | ssm:  mamba2(heads=24, head_dim=64, state=128, groups=1, conv=4, chunk=128) >> scale(0.35) )
        x += norm >> mlp: swiglu(2048)
      }

      embed  = embedding(32784, dim, scale=5.65)
      layers = H * depth
      head   = norm >> lm_head(32784, scale=0.0195)
    }

    precision {
      default bf16
      fp8(block128) on layers[1:-1].**     except router, norm, conv
      bitnet        on layers[4:12].mlp
      fp32          on **.router, **.A_log, **.dt_bias
    }

    mesh {
      pp = 2                             # pipeline stages; `layers` may place them with |
      dp = fsdp(4)                       # or replicate(4)
      cp = dynamic(1..8)                 # or a fixed size
      tp = 2                             # sequence parallelism comes with it
      ep = hybrid(node=2, local=4)       # two-level expert parallelism
    }
    """
    sink = hybridc.check(text)
    assert [d.code for d in sink.errors] == []
    assert {d.code for d in sink.diagnostics} <= {"HYB216", "HYB306", "HYB312"}


def test_sequences_and_calls_differ_by_a_space():
    assert value("M (M A)") == ast.Sequence((ast.Name("M"), ast.Sequence((ast.Name("M"), ast.Name("A")))))
    assert value("A(w=1)") == ast.Call("A", (), (ast.Keyword("w", ast.Num(1)),))
    assert value("M*3 A") == ast.Sequence((ast.Binary("*", ast.Name("M"), ast.Num(3)), ast.Name("A")))
    assert value("a - b") == ast.Binary("-", ast.Name("a"), ast.Name("b"))


def test_precedence():
    a, b, c = map(ast.Name, "abc")
    assert value("a >> b | c") == ast.Parallel((ast.Pipe((a, b)), c))
    assert value("a + b * c") == ast.Binary("+", a, ast.Binary("*", b, c))
    assert value("a: b(1) >> c") == ast.Pipe((ast.Label("a", ast.Call("b", (ast.Num(1),))), c))
    assert value("not a and b") == ast.Binary("and", ast.Unary("not", a), b)
    assert value("a if b else c if a else b") == ast.Conditional(b, a, ast.Conditional(a, c, b))
    assert value("-a % b") == ast.Binary("%", ast.Unary("-", a), b)


def test_lines_go_on_inside_parentheses_and_around_operators():
    text = "model m {\n block A {\n x += a\n   >> b\n   | c |\n d\n t = (\n a\n )\n }\n}"
    body = parse(text).model.members[0].body
    assert [s.target for s in body] == ["x", "t"]
    assert isinstance(body[0].value, ast.Parallel) and len(body[0].value.branches) == 3


@pytest.mark.parametrize(
    "text",
    ["let a = 1; let b = 2", "let a = 1\nlet b = 2", "let a = 1\n\n# c\n\nlet b = 2\n", "let a = 1\r\nlet b = 2\r\n"],
)
def test_statements_end_with_lines_or_semicolons(text):
    assert [m.name for m in parse(text).members] == ["a", "b"]


def test_arguments_may_be_named_like_words_of_the_language():
    assert value("moe(shared=3)").kwargs[0].name == "shared"


ERRORS = [
    ("let a = 1 +* 2", [(1, 12)], "write an expression in front of it"),
    ("model m {\n  layers = A (\n  head = b\n}", [(2, 14)], "add the missing `)`"),
    ("model m {\n  block A {\n    x += a\n", [(1, 9), (2, 11)], "add the missing `}`"),
    ("let a = (1\nlet b = 2", [(1, 9)], "add the missing `)`"),
    ("model m {\n}\n}", [(3, 1)], "remove this `}`"),
    ('import "abc', [(1, 8)], 'close it with `"`'),
    ("model m { block A { x =+ a } }", [(1, 24)], "write `+=`"),
    ("model m { embed: a }", [(1, 16)], "write `=` instead of `:`"),
    ("let a = attention (heads=4)", [(1, 25)], "remove the space"),
    ("let a = b && c", [(1, 11)], "write `and`"),
    ("let а = 1", [(1, 5)], "use A-Z"),
    ("modle m { }", [(1, 1)], "did you mean `model`?"),
    ("let on = 1", [(1, 5)], "choose another name"),
    ("let a = $", [(1, 9)], "remove it"),
    ("let a = 'b'", [(1, 9)], 'strings are written with "'),
    ('let a = "\\q"', [(1, 9)], "the escapes are"),
    ("model a { }\nmodel b { }", [(2, 1)], "one `model`"),
    ("model m { layer = A }", [(1, 11)], "did you mean `layers`?"),
    ("let a = f(b=1, 2)", [(1, 16)], "give this one a name"),
    ("let a = f(1, 2 3", [(1, 10)], "add the missing `)`"),
    ("let a = b || c", [(1, 11)], "write `or`"),
    ("shared(0) block S { x += a }", [(1, 1)], "write shared(1) or more"),
    ("shared(1.5) block S { x += a }", [(1, 1)], "write shared(1) or more"),
    ("shared(inf) block S { x += a }", [(1, 1)], "write shared(1) or more"),
    ("let a = f(b))", [(1, 13)], "remove this `)`: nothing is open"),
    ("let a = f(b])", [(1, 12)], "close `(` first"),
    ("precision { bf16 layers[0] }", [(1, 28)], "FORMAT on SELECTORS"),
    ("block A(w=none { x += a }", [(1, 8)], "add the missing `)`"),
    ("let a = b -> c", [(1, 11)], "write `>>`"),
    ("let a =\nlet b = 2", [(1, 8)], "finish the statement"),
    ("let a == 2", [(1, 7)], "write `=` instead of `==`"),
    ("falcon {\n  param dim = 64\n}", [(1, 1)], "write `model falcon {`"),
    ("model m {\n  blok A {\n    x += a\n  }\n}", [(2, 8)], "did you mean `block`?"),
    ("let a = .5", [(1, 9)], "write `0.`"),
    ("let a = 1. + 2", [(1, 10)], "write `1.0`"),
    ("let a = 0x10", [(1, 9)], "numbers look like"),
    ("let a = M*3A", [(1, 11)], "put a space"),
    ("let a = 1e400", [(1, 9)], "write `inf`"),
    ("let a = \u0663", [(1, 9)], "use A-Z, a-z, 0-9"),
    ("let n\u0430me = 1", [(1, 6)], "use A-Z"),
    ('let a = f("abc, 3)\nlet b = 2', [(1, 11)], 'close it with `"`'),
    ("let a = 1  # \u202e", [(1, 14)], "remove it"),
    ('let a = "\x1b[31m"', [(1, 10)], "remove it"),
    ("let a = 1\rlet b = 2", [(1, 10)], "remove it"),
    ('let a = "\ud800"', [(1, 10)], "remove it"),
    ("let a = " + "f(1 + -" * 99 + "1" + ")" * 99, [(1, 1)], "lets"),
    ("let a = " + "(" * 200, [(1, 109)], "lets"),
    ("let a = 1" + " + 1" * 300, None, "lets"),
    ("let a = \x00", [(1, 9)], None),
]


@pytest.mark.parametrize(("text", "places", "help"), ERRORS, ids=[e[0][:20] for e in ERRORS])
def test_mistakes_are_found_where_they_are(text, places, help):
    sink = Sink()
    parse(text, sink=sink)
    got = [(d.span.line, d.span.col) for d in sink.errors]
    if places is not None:
        for place in places:
            assert place in got, (got, [d.label for d in sink.errors])
    if help is not None:
        assert any(help in d.help for d in sink.errors), [d.help for d in sink.errors]
    with pytest.raises(DiagnosticError):
        parse(text)


CODES = {
    "let a = 1 +* 2": "HYB001",
    "let a = " + "(" * 200: "HYB002",
    "let a = 'b'": "HYB003",
    'let a = "b': "HYB003",
    'let a = "\\q"': "HYB003",
    "let a = $": "HYB004",
    "let n\u0430me = 1": "HYB004",
    "let a = f(b=1, 2)": "HYB005",
    "mesh { tp = 1 }\nmesh { tp = 2 }": "HYB005",
    "model m { layer = A }": "HYB006",
}


@pytest.mark.parametrize("text", CODES, ids=[f"{code}-{n}" for n, code in enumerate(CODES.values())])
def test_each_mistake_has_its_code(text):
    sink = Sink()
    parse(text, sink=sink)
    assert CODES[text] in [d.code for d in sink.errors]


def test_all_syntax_errors_of_a_file_in_one_go():
    text = (
        "model m {\n  param = 3\n  let a = * 2\n  block A {\n    x += >> b\n    x += c\n  }\n  head = )\n  embed = e\n}"
    )
    sink = Sink()
    spec = parse(text, sink=sink)
    assert [d.span.line for d in sink.errors] == [2, 3, 5, 8]
    kept = [type(m).__name__ for m in spec.model.members]
    assert kept == ["Block", "Entry"] and len(spec.model.members[0].body) == 1


@pytest.mark.parametrize("text", [e[0] for e in ERRORS if "\n" not in e[0] and "(" * 200 not in e[0]])
def test_one_slip_is_one_diagnostic(text):
    sink = Sink()
    parse(text, sink=sink)
    first = [d for d in sink.errors if d.span.start <= 14 or len(sink.errors) == 1]
    assert len(sink.errors) <= 2 and first


def test_what_was_expected_is_said_in_words():
    for text, wanted in [
        ("let a = f(1 2", "`(` is never closed"),
        ("let a = f(1 = 2)", "unexpected `=`; expected `)`, `,` or an operator"),
        ("let a = [1; 2]", "expected `]`, `,` or `for`"),
        ("let = 3", "unexpected `=`; expected a name"),
        ("model m\n{ }", "the line ends here; expected `{`"),
        ("let a = * 2", "unexpected `*`; expected an expression"),
    ]:
        sink = Sink()
        parse(text, sink=sink)
        assert wanted in sink.errors[0].label, sink.errors[0].label


def test_no_more_than_twenty_errors_however_long_the_text():
    """Each of these takes minutes where the work grows with the square of the text."""
    many = ["$" * 100_000, '"\n' * 100_000, "let = 3\n" * 2000, "(\nlet " * 20_000, "}" * 20_000, "\x00" * 100_000]
    many += ["\u0430 " * 50_000, "\n;" * 20_000 + "$", "let a = (\n" * 2000, "\n" * 500_000 + "$"]
    for text in many:
        sink = Sink()
        parse(text, sink=sink)
        assert 1 <= len(sink.errors) <= 20, (text[:10], len(sink.errors))


def test_words_of_the_language_are_names_in_selectors():
    rule = parse("precision { fp32 on **.shared.down, shared except shared.up, mesh }").precision.rules[0]
    names = [[step.name for step in selector.steps] for selector in (*rule.on, *rule.exclude)]
    assert names == [["**", "shared", "down"], ["shared"], ["shared", "up"], ["mesh"]]


def test_a_byte_order_mark_is_no_mistake():
    assert parse("\ufefflet a = 1") == parse("let a = 1")


@pytest.mark.parametrize("deep", ["f({})", "[{}]", "-{}", "not {}", "1 + ({})", "a: ({} >> b)", "1 if ({}) else 2"])
def test_nesting_to_the_limit_is_fine_everywhere(deep):
    """Below the limit every stage copes, above it there is a diagnostic: never a RecursionError."""
    for levels in (40, 60, 90, 98, 99, 100, 101, 150):
        text = "x"
        for _ in range(levels):
            text = deep.format(text)
        spec = f"model m {{ block A {{ x += {text} }}\n embed = embedding(9, 8)\n layers = A\n head = {text} }}"
        sink = hybridc.check(spec)
        if all(d.code != "HYB002" for d in sink.errors):
            assert hybridc.parse(hybridc.format_source(spec)) == hybridc.parse(spec)
            repr(hybridc.parse(spec))
        else:
            assert levels > 45


@pytest.mark.parametrize("head", ["model m", "block A", "block A(w=1)", "shared(2) block A", "precision", "mesh"])
def test_a_missing_brace_is_one_mistake(head):
    bodies = {"model": "param dim = 64\n  layers = A", "precision": "default bf16", "mesh": "tp = 2"}
    body = bodies.get(head.split()[0], "x += a\n  x += b")
    sink = Sink()
    broken = parse(f"let a = 1\n{head}  # a comment\n  {body}\n}}\nlet b = 2\n", sink=sink)
    assert [(d.span.line, d.help) for d in sink.errors] == [(2, "write `{` here")]
    assert broken == parse(f"let a = 1\n{head} {{\n  {body}\n}}\nlet b = 2\n")


def test_a_slip_anywhere_in_a_spec_is_one_diagnostic_near_it():
    """Each bracket, operator and word of a whole spec left out in turn."""
    from hybridc.frontend.tokens import tokenize

    text = (ROOT / "specs" / "falcon_h1_0_5b.hyb").read_text()
    several = []
    tokens = [t for t in tokenize(text, "", Sink())[0] if t.text != "\n"]
    for token in tokens:
        sink = Sink()
        parse(text[: token.span.start] + text[token.span.end :], sink=sink)
        if len(sink.errors) > 1:
            several.append((token.text, token.span.line, [d.label for d in sink.errors]))
        if token.text not in "(){}":  # those are missed where the other of the pair stands
            assert all(abs(d.span.line - token.span.line) <= 1 for d in sink.errors)
    assert len(several) <= len(tokens) // 50, several
