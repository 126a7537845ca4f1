"""Fenced blocks of the documentation, and the specs that fragments of the language stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)

PATTERN_BLOCKS = """
  block M { x += rmsnorm() >> mamba2(heads=4, state=16) }
  block A(window=none) { x += rmsnorm() >> attention(heads=4, window=window) }
  block E { x += rmsnorm() >> moe(experts=8, hidden=32, top_k=2) }
  block Mlp { x += rmsnorm() >> swiglu(128) }
"""
SECTION_MODEL = """model sections {
  let norm = rmsnorm()
  block H {
    x += norm >> attention(heads=4)
    x += norm >> mamba2(heads=4, state=16)
    x += norm >> swiglu(128)
    x += norm >> moe(experts=8, hidden=32, top_k=2)
  }
  embed = embedding(256, 64)
  layers = H * 4
  head = norm >> lm_head(256)
}
"""


@dataclass(frozen=True)
class Fence:
    """A fenced block: `language` and `words` are its info string, `line` where it starts."""

    language: str
    words: tuple[str, ...]
    body: str
    line: int

    @property
    def code(self) -> str:
        """The diagnostic that the fragment must give, or ""."""
        return next((w for w in self.words if w.startswith("HYB")), "")

    @property
    def file(self) -> str:
        """The file that a test writes the block to, or ""."""
        return next((w.removeprefix("file=") for w in self.words if w.startswith("file=")), "")


def fences(path: Path) -> list[Fence]:
    """All fenced blocks of a page in order."""
    text = path.read_text(encoding="utf-8")
    out = []
    for match in FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        out.append(Fence(language, tuple(words), match["body"], text.count("\n", 0, match.start()) + 1))
    return out


def spec_of(fence: Fence) -> str:
    """The whole spec that a `hybridc` block stands for.

    `body` is a block's statements, `model` some members, `layers` a pattern, `section` a precision or mesh section.
    """
    ends = "embed = embedding(256, 64)\n  head = rmsnorm() >> lm_head(256)\n"
    if "body" in fence.words:
        return f"model m {{\n  block H {{\n{fence.body}  }}\n  {ends}  layers = H * 2\n}}\n"
    if "layers" in fence.words:
        return f"model m {{{PATTERN_BLOCKS}  {ends}  layers = {fence.body}}}\n"
    if "model" in fence.words:
        return f"model m {{\n{fence.body}  {ends}}}\n"
    if "section" in fence.words:
        return SECTION_MODEL + fence.body
    return fence.body
