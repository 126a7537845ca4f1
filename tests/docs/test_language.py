"""Every example of the language reference and of the README is parsed and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

import hybridc
from hybridc.frontend.document import format_source
from tests.docs.markdown import ROOT, Fence, fences, spec_of

UNUSED = {"HYB104", "HYB105", "HYB106", "HYB107"}
"""Warnings that fragments may give, since they show one thing at a time."""
NOT_EMITTED = {"HYB220", "HYB305"}

LANGUAGE = fences(ROOT / "docs" / "language.md")
SPECS = [f for f in LANGUAGE if f.language == "hybridc" and not f.file]


def test_the_page_has_examples() -> None:
    assert len(SPECS) >= 20


@pytest.mark.parametrize("fence", SPECS, ids=lambda f: f"line{f.line}")
def test_example(fence: Fence, tmp_path: Path) -> None:
    for other in LANGUAGE:
        if other.file:
            (tmp_path / other.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / other.file).write_text(other.body, encoding="utf-8")
    path = tmp_path / "example.hyb"
    path.write_text(spec_of(fence), encoding="utf-8")
    sink = hybridc.check(path)
    if fence.code:
        assert [d.code for d in sink.errors] == [fence.code]
    else:
        assert not sink.errors, str(hybridc.DiagnosticError(sink.diagnostics, sink.sources))
        assert {d.code for d in sink.diagnostics} <= UNUSED | NOT_EMITTED
        assert hybridc.parse(format_source(spec_of(fence))) == hybridc.parse(spec_of(fence))


def test_whole_files_are_in_canonical_form() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "language.md", ROOT / "docs" / "tutorial.md"):
        for fence in fences(page):
            if fence.language == "hybridc" and fence.words in ((), (f"file={fence.file}",)):
                assert format_source(fence.body) == fence.body, f"{page.name}:{fence.line}"


def test_python_builder() -> None:
    (code,) = [f.body for f in LANGUAGE if f.language == "python"]
    names: dict[str, object] = {}
    exec(code, names)
    assert names["compiled"].ir.name == "tiny"  # type: ignore[attr-defined]


def test_every_op_is_listed() -> None:
    from hybridc.ir.describe import all_names

    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    written_as_operators = {"add", "mul"}
    assert [n for n in all_names() if f"`{n}(" not in text and n not in written_as_operators] == []
