"""The shape of diagnostics, as the language's reference fixes it."""

import json

import pytest

import hybridc
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, Span
from hybridc.diagnostics.render import explain, render_json, render_text

FALCON = """model falcon {
  param dim = 64
  let norm = rmsnorm()
  block A {
    x += norm >> swiglu(96)
    x += norm
    x += norm >> attn: attention(heads=9, kv_heads=3, head_dim=64)
  }
  embed = embedding(320)
  layers = A
  head = norm >> lm_head(320)
}
mesh { tp = 2 }
"""

WANTED = """error[HYB214]: attention heads do not divide over tp
  --> falcon.hyb:7:34
   |
 7 |     x += norm >> attn: attention(heads=9, kv_heads=3, head_dim=64)
   |                                  ^^^^^^^ 9 attention heads over tp = 2 (line 13)
   = help: use a multiple of 2 for heads, or tp = 1 or 3
"""


def test_the_shape_of_the_reference(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "falcon.hyb").write_text(FALCON)
    sink = hybridc.check("falcon.hyb")
    shown = render_text([d for d in sink.diagnostics if d.code == "HYB214"], sink.sources)
    assert shown == WANTED + "\n1 error\n"


TWO_FILES = {
    "lib/norms.hyb": "let norm = rmsnorm()\n" + "\n" * 120 + "let norm = layernorm()\n",
    "m.hyb": "\tlet b = 1\n\n",
}

WANTED_TWO = """warning[HYB106]: unused let
  --> m.hyb:1:2
   |
 1 |     let b = 1
   |     ^^^^^^^^^ let `b` is never used
   = help: use it or remove it

error[HYB103]: defined twice
   --> lib/norms.hyb:122:5
    |
122 | let norm = layernorm()
    |     ^^^^ `norm` is defined twice
    = help: rename one of them
note: first defined here
   --> lib/norms.hyb:1:1
    |
  1 | let norm = rmsnorm()
    | --------------------

error[HYB400]: file not found
   = `x.hyb` cannot be read: No such file or directory
   = help: check the name

2 errors, 1 warning
"""


def test_notes_warnings_and_places_without_a_file():
    unused = Diagnostic(
        "HYB106", Span("m.hyb", 1, 10, 1, 2, 1, 11), "let `b` is never used", "use it or remove it", "warning"
    )
    first = Span("lib/norms.hyb", 0, 20, 1, 1, 1, 21)
    at = TWO_FILES["lib/norms.hyb"].rindex("norm =")
    twice = Diagnostic(
        "HYB103", Span("lib/norms.hyb", at, at + 4, 122, 5, 122, 9), "`norm` is defined twice", "rename one of them",
        related=((first, "first defined here"),),
    )  # fmt: skip
    missing = Diagnostic("HYB400", NO_SPAN, "`x.hyb` cannot be read: No such file or directory", "check the name")
    assert render_text([unused, twice, missing], TWO_FILES) == WANTED_TWO


WANTED_SEVERAL = """error[HYB005]: wrong order
  --> m.hyb:3:1
   |
 3 | mesh {
   | ^^^^^^ a second `mesh` (to line 5)
   = help: a file has one `mesh` at most

1 error
"""


def test_a_place_of_several_lines():
    with pytest.raises(DiagnosticError) as caught:
        hybridc.parse("mesh { }\n\nmesh {\n  tp = 2\n}\n", "m.hyb")
    assert str(caught.value) == WANTED_SEVERAL


WANTED_END = """error[HYB001]: syntax error
  --> m.hyb:1:8
   |
 1 | let a =
   |        ^ the line ends here; expected an expression
   = help: finish the statement

1 error
"""


def test_the_end_of_a_line_is_a_place():
    with pytest.raises(DiagnosticError) as caught:
        hybridc.parse("let a =\nlet b = 1\n", "m.hyb")
    assert str(caught.value) == WANTED_END


def test_nothing_of_a_spec_reaches_the_terminal_as_a_command():
    text = 'let a\x1b[31m = "\x1b]0;title\x07" $\n'
    with pytest.raises(DiagnosticError) as caught:
        hybridc.parse(text, "m\x1b[2J.hyb")
    shown = str(caught.value)
    assert shown.isascii() and all(c.isprintable() or c == "\n" for c in shown)
    odd = Diagnostic("HYB001", NO_SPAN, "a\nerror[HYB999]: b\ud800", "c\r\x9b")
    assert render_text([odd], {}).splitlines()[1] == "   = a error[HYB999]: b?"
    render_text([odd], {}).encode()


def test_a_long_line_is_cut_around_the_place():
    text = "let a = " + "b + " * 100 + "$ + c"
    with pytest.raises(DiagnosticError) as caught:
        hybridc.parse(text, "m.hyb")
    source, carets = str(caught.value).splitlines()[3:5]
    assert len(source) < 200 and source[carets.index("^")] == "$"


def test_json_has_all_of_it():
    sink = hybridc.check(FALCON)
    first = next(d for d in json.loads(render_json(sink.diagnostics)) if d["code"] == "HYB214")
    assert first["severity"] == "error" and first["help"] and first["message"]
    assert first["span"]["start"] == {"line": 7, "column": 34, "offset": FALCON.index("heads=9")}


def test_tabs_wide_letters_and_places_without_source():
    text = "\tlet é = 日本 + bad"
    at = text.index("bad")
    span = Span("f", at, at + 3, 1, at + 1, 1, at + 4)
    shown = render_text([Diagnostic("HYB001", span, "here", "mend")], {"f": text}).splitlines()
    assert shown[3].startswith(" 1 |     let")
    # a tab takes four columns and each of the two wide letters two
    assert shown[4].index("^") - shown[4].index("|") - 2 == 4 + len("let é = ") + 4 + len(" + ")
    assert "f:1:" in render_text([Diagnostic("HYB001", span, "here", "mend")], {})
    nowhere = Span("", 0, 0, 0, 0, 0, 0)
    assert "here" in render_text([Diagnostic("HYB001", nowhere, "here", "mend", "warning")], {})


def test_colour_changes_nothing_but_colour():
    import re

    sink = hybridc.check(FALCON)
    plain, painted = (render_text(sink.diagnostics, sink.sources, color=c) for c in (False, True))
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain and painted != plain


def test_explain():
    assert "HYB214" in explain("hyb214") and "query heads" in explain("HYB214")
    with pytest.raises(KeyError, match="HYB214"):
        explain("HYB2145")
