"""The shape of diagnostics, as the language's reference fixes it."""

import json

import pytest

import hybridc
from hybridc.diagnostics import Diagnostic, Span
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
    # the gutter is as wide as the line number
    assert (
        shown
        == WANTED.replace("\n 7 |", "\n7 |")
        .replace("\n   |", "\n  |")
        .replace("\n   =", "\n  =")
        .replace("  -->", " -->")
        + "\n1 error\n"
    )


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
    assert shown[3].replace("1 | ", "").startswith("    let")
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
