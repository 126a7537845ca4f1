"""The report as text."""

from __future__ import annotations

import re

import hybridc
from hybridc.report.terminal import render

SPEC = """model patterned {
  block M { x += rmsnorm() >> mamba2(heads=4, state=16) }
  block Attn(window=none) { x += rmsnorm() >> mix: attention(heads=4, window=window) }
  embed = embedding(50, 64)
  layers = (M M M Attn) * 8 | M (Attn(window=16) M) * 2
  head = lm_head(50)
}
precision { default bf16
  fp32 on **.A_log }
mesh { dp = fsdp(4) }
"""


def test_picture_and_tables() -> None:
    text = render(hybridc.compile(SPEC).ir, batch=2, seq=1024, width=120)
    lines = text.splitlines()
    assert lines[0].startswith("patterned") and "37 layers, bf16" in lines[0]
    assert "( M   M   M   A ) x 8 ┃  ( M   A2 ) x 2  M" in text
    assert re.search(r"A2 +Attn_2 = Attn\(window=16\)  2 layers: mix: attention", text)
    assert "pipeline stage ends; 2 stages" in text
    assert "for 2 x 1,024 tokens" in text
    assert re.search(r"^ M +27 ", text, re.MULTILINE)
    assert "precision: fp32 on **.A_log" in text and "mesh: dp = fsdp(4)" in text
    assert "\x1b" not in text


def test_colours_only_when_asked_for() -> None:
    module = hybridc.compile(SPEC).ir
    colored = render(module, color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored).split() == render(module).split()


def test_no_line_is_wider_than_asked() -> None:
    for width in (60, 80, 120):
        assert max(map(len, render(hybridc.compile(SPEC).ir, width=width).splitlines())) <= width


def test_many_different_layers_are_cut() -> None:
    blocks = "\n".join(f"block B{n}{{ x += rmsnorm() >> linear(8) >> scale({n}) }}" for n in range(1, 4))
    # no repetition to fold: the Thue-Morse word has no unit three times in a row
    word = " ".join(f"B{1 + bin(n).count('1') % 2}" for n in range(2000))
    spec = f"model m {{ {blocks}\n embed = embedding(9, 8)\n layers = {word} B3\n head = lm_head(9) }}"
    assert len(render(hybridc.compile(spec).ir)) < 40_000


def test_compiled_report_is_the_same() -> None:
    compiled = hybridc.compile(SPEC)
    assert compiled.report(batch=2, seq=64) == render(compiled.ir, batch=2, seq=64)
