"""The tutorial and the README, followed to the letter: files are written, commands run, outputs compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hybridc
from bench.smollm2 import fetch
from hybridc.frontend.hf import families
from hybridc.ir.formats import RECIPES
from tests.docs.markdown import ROOT, fences


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `hybridc` and `python` are this interpreter's, whatever is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, words in (("python", ""), ("hybridc", " -m hybridc.cli")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    clean = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "HYBRIDC_DEBUG")}
    path = f"{folder}{os.pathsep}{clean['PATH']}"
    return {**clean, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def follow(page: Path, folder: Path, environment: dict[str, str], *, python: bool = False) -> int:
    """Writes the page's files and runs its console blocks in `folder`, and its Python where that is wanted; returns how
    many commands it ran."""
    ran = 0
    for fence in fences(page):
        if fence.file:
            (folder / fence.file).write_text(fence.body, encoding="utf-8")
        if python and fence.language == "python":
            subprocess.run([sys.executable, "-c", fence.body], cwd=folder, env=environment, check=True, timeout=300)
        if fence.language != "console":
            continue
        for step in re.split(r"^\$ ", fence.body, flags=re.MULTILINE)[1:]:
            command, _, expected = step.partition("\n")
            # the page shows PYTHONPATH=. for users whose hybridc is installed; here it is found in the tree
            command = command.replace("PYTHONPATH=.", f"PYTHONPATH=.{os.pathsep}{ROOT}")
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
            said = done.stdout + (f"[exit status {done.returncode}]\n" if done.returncode else "")
            compare(said, expected, f"{page.name}:{fence.line}: {command}")
            ran += 1
    return ran


def compare(said: str, expected: str, where: str) -> None:
    """`...` in the page stands for any text, on a line of its own for any lines; losses may differ."""
    said, shown = (re.sub(r"loss \d+\.\d+", "loss #", text.rstrip("\n")) for text in (said, expected))
    pattern = re.sub(r"^\\.\\.\\.\\\n", r"(?:.*\\n)*?", re.escape(shown) + "\\\n", flags=re.MULTILINE)
    pattern = pattern.replace(r"\.\.\.", ".*")
    assert re.fullmatch(pattern, said + "\n"), f"{where}\nexpected:\n{expected}\ngot:\n{said}"


def test_tutorial(tmp_path: Path, environment: dict[str, str]) -> None:
    assert follow(ROOT / "docs" / "tutorial.md", tmp_path, environment) >= 12


@pytest.mark.download
def test_gguf_page(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "smollm2.gguf").symlink_to(fetch(ROOT / "build" / "smollm2"))
    assert follow(ROOT / "docs" / "gguf.md", tmp_path, environment) == 5
    (python,) = (f.body for f in fences(ROOT / "docs" / "gguf.md") if f.language == "python")
    subprocess.run([sys.executable, "-c", python], cwd=tmp_path, env=environment, check=True)


def test_checkpoints_page(tmp_path: Path, environment: dict[str, str]) -> None:
    page = ROOT / "docs" / "checkpoints.md"
    (tmp_path / "public").symlink_to(ROOT / "tests" / "frontend" / "hf" / "goldens" / "jamba_aux")
    assert follow(page, tmp_path, environment, python=True) == 6
    named = set(
        re.findall(
            r"`(\w+)`", page.read_text(encoding="utf-8").partition("Families, by")[2].partition("Nemotron-H's")[0]
        )
    )
    assert named == {*families(), "model_type"}


def test_precision_page(tmp_path: Path, environment: dict[str, str]) -> None:
    page = ROOT / "docs" / "precision.md"
    assert follow(page, tmp_path, environment, python=True) == 2
    text = page.read_text(encoding="utf-8")
    assert all(f"`fp8({recipe})`" in text for recipe in RECIPES) and "`bitnet(packed)`" in text


def test_transformers_page(tmp_path: Path, environment: dict[str, str]) -> None:
    environment |= {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    assert follow(ROOT / "docs" / "transformers.md", tmp_path, environment, python=True) == 3


README = fences(ROOT / "README.md")


def test_readme_commands_and_module(tmp_path: Path, environment: dict[str, str]) -> None:
    spec = next(f.body for f in README if f.language == "hybridc")
    assert len([line for line in spec.splitlines() if line]) <= 20
    (tmp_path / "tiny.hyb").write_text(spec, encoding="utf-8")
    console = next(f for f in README if f.language == "console")
    python = [f for f in README if f.language == "python"]
    for line in console.body.splitlines():
        if line.startswith("$ "):
            subprocess.run(["sh", "-c", line[2:]], cwd=tmp_path, env=environment, check=True, capture_output=True)
    for fence in python:
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '.')\n{fence.body}"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)


def test_readme_shows_the_diagnostic_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = next(f.body for f in README if f.language == "text" and f.body.startswith("error["))
    spec = next(f.body for f in README if f.language == "hybridc")
    Path("tiny.hyb").write_text(spec.replace("kv_heads=2", "kv_heads=3"), encoding="utf-8")
    sink = hybridc.check("tiny.hyb")
    assert str(hybridc.DiagnosticError(sink.diagnostics, sink.sources)).startswith(shown.rstrip())


def test_readme_lists_every_command() -> None:
    from hybridc.cli import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names = [c.name or (c.callback.__name__ if c.callback else "") for c in app.registered_commands]
    assert [n for n in [*names, "import hf", "import gguf"] if f"| `hybridc {n}" not in text] == []


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE) or target == "and", target
