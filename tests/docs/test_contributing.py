"""The worked examples of CONTRIBUTING.md: each page is applied to a copy of the tree, and the test that it adds is
run."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Fence, fences

PAGES = sorted((ROOT / "docs" / "contributing").glob("*.md"))


def edited(fence: Fence) -> str:
    """The file that a `diff` block changes, or ""."""
    return next((w.removeprefix("edit=") for w in fence.words if w.startswith("edit=")), "")


def apply(text: str, diff: str) -> str:
    """A text with the lines of a block without line numbers: ` ` stays, `-` goes, `+` comes. It must fit once."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    if text.count(before) != 1:
        # a change within a line
        before, after = before.strip(), after.strip()
    assert text.count(before) == 1, f"found {text.count(before)} times:\n{before}"
    return text.replace(before, after)


def changed_files(page: Path) -> set[str]:
    return {name for f in fences(page) if (name := f.file or edited(f))}


def test_there_are_five() -> None:
    assert [p.stem for p in PAGES] == ["backend", "family", "format", "op", "pass"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_touches_three_files_at_most_and_one_is_a_test(page: Path) -> None:
    files = changed_files(page)
    assert len(files) <= 3
    assert len([f for f in files if f.startswith("tests/")]) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_works(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "hybridc", tmp_path / "hybridc", ignore=shutil.ignore_patterns("__pycache__"))
    for fence in fences(page):
        target = tmp_path / (fence.file or edited(fence))
        target.parent.mkdir(parents=True, exist_ok=True)
        if fence.file:
            assert not target.exists(), f"{fence.file} is there already: choose another example"
            ast.parse(fence.body)
            target.write_text(fence.body, encoding="utf-8")
        elif edited(fence):
            target.write_text(apply(target.read_text(encoding="utf-8"), fence.body), encoding="utf-8")
    (test,) = [f for f in changed_files(page) if f.startswith("tests/")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", test]
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    probe = [sys.executable, "-c", "import hybridc; print(hybridc.__file__)"]
    found = subprocess.run(probe, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_source_passes_the_linters(page: Path, tmp_path: Path) -> None:
    for fence in fences(page):
        if fence.file:
            path = tmp_path / fence.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.body, encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
