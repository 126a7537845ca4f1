"""The house's rules that a machine can hold: which way imports point, how long files are, what they must not say."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from hybridc.frontend.hf import families

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "hybridc").rglob("*.py"))

ALLOWED = {
    "diagnostics": set(),
    "version": set(),
    "ir": {"diagnostics"},
    "frontend": {"diagnostics", "ir"},
    "passes": {"diagnostics", "ir"},
    "codegen": {"diagnostics", "ir", "passes", "version"},
    "runtime": set(),
    "ahead": {"codegen", "diagnostics", "ir", "runtime"},
    "compiler": {"codegen", "diagnostics", "frontend", "ir", "passes", "report", "runtime", "version"},
}
"""What each part may import besides itself; the runtime also `hybridc.ir.types`. Parts above these are free."""


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def part(path):
    first = path.relative_to(ROOT / "hybridc").parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    mine = part(path)
    if mine not in ALLOWED:
        return
    for name in imports(path):
        if not name.startswith("hybridc."):
            continue
        other = name.split(".")[1]
        if mine == "runtime" and name == "hybridc.ir.types":
            continue
        assert other == mine or other in ALLOWED[mine], f"{path.name} imports {name}"


def test_the_graph_core_stays_small():
    """Examples to follow: one small core, under 800 lines."""
    core = ["types.py", "attrs.py", "graph.py", "verify.py", "ops/base.py"]
    assert sum(len((ROOT / "hybridc" / "ir" / f).read_text().splitlines()) for f in core) < 800


def test_files_are_small():
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 420, path


def test_no_family_is_named_outside_of_its_importer():
    """`llama3` is the name of a rope formula, papers are sources; mamba and mamba2 are ops, bitnet is a format."""
    named = "|".join(sorted(set(families()) - {"mamba", "mamba2", "bitnet"}))
    for path in FILES:
        if part(path) in ("ir", "passes", "codegen", "runtime"):
            text = path.read_text()
            found = re.search(r"falcon|mixtral|llama(?! ?3)", text, re.IGNORECASE) or re.search(rf"\b({named})\b", text)
            assert found is None, (path, found)


def test_every_public_name_outside_tests_has_a_docstring():
    for path in FILES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree) or not path.read_text().strip(), path
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}: {node.name}"


def test_no_path_of_a_machine_in_tracked_files():
    done = subprocess.run(
        ["git", "grep", "-nE", r"(^|[^a-zA-Z.])/(work|root|home|farm)/", "--", ".", ":!tests/test_architecture.py"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == ""
