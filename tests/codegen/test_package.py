"""The emitted package: deterministic, atomic, importable, clean."""

import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hybridc
from hybridc.codegen.package import write_package
from hybridc.diagnostics import DiagnosticError

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "specs" / "demo_hybrid.hyb"


def test_same_input_same_bytes_in_any_process():
    code = (
        "import hybridc, hashlib, sys; s = hybridc.compile(sys.argv[1]).source;"
        "print(hashlib.sha256(repr(sorted(s.items())).encode()).hexdigest())"
    )
    seen = set()
    for seed in ("0", "1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        seen.add(
            subprocess.run(
                [sys.executable, "-c", code, str(DEMO)], env=env, capture_output=True, text=True, check=True
            ).stdout
        )
    here = hashlib.sha256(repr(sorted(hybridc.compile(DEMO).source.items())).encode()).hexdigest()
    assert seen == {here + "\n"}


def test_compile_and_check_import_no_torch():
    code = (
        "import sys, hybridc; hybridc.compile(sys.argv[1]); hybridc.check(sys.argv[1]);"
        "print([m for m in ('torch', 'sympy', 'pydantic', 'numpy') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, str(DEMO)], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_package_is_importable_and_equals_what_load_gives(tmp_path, monkeypatch):
    compiled = hybridc.compile(DEMO)
    compiled.save(tmp_path / "demo_pkg")
    monkeypatch.syspath_prepend(str(tmp_path))
    net = importlib.import_module("demo_pkg").Model()
    net.init_weights(5)
    other = compiled.load(seed=5)
    ids = torch.arange(12)[None]
    assert torch.equal(net(ids).logits, other(ids).logits)
    assert {p.name for p in (tmp_path / "demo_pkg").iterdir()} >= {
        "__init__.py",
        "model.py",
        "manifest.json",
        "spec.hyb",
    }
    again = hybridc.compile(tmp_path / "demo_pkg" / "spec.hyb")
    assert again.source == compiled.source


def test_emitted_imports_are_torch_and_the_runtime_only():
    import ast

    for name in ("demo_hybrid", "falcon_h1_0_5b", "mixtral_tiny"):
        tree = ast.parse(hybridc.compile(ROOT / "specs" / f"{name}.hyb").source["model.py"])
        modules = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules |= {a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module)
        assert all(m == "torch" or m.startswith(("torch.", "hybridc.runtime")) for m in modules), modules


def test_emitted_code_is_clean(tmp_path):
    for spec in (ROOT / "specs").glob("*.hyb"):
        hybridc.compile(spec).save(tmp_path / spec.stem)
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--line-length",
        "120",
        "--select",
        "E,F,I",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_foreign_folder_is_left_alone(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(DiagnosticError, match="HYB403"):
        hybridc.compile(DEMO).save(folder)
    assert [p.name for p in folder.iterdir()] == ["thesis.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(DiagnosticError, match="HYB403"):
        hybridc.compile(DEMO).save(tmp_path / "file")


def test_a_package_is_replaced_whole(tmp_path):
    compiled = hybridc.compile(DEMO)
    compiled.save(tmp_path / "p")
    (tmp_path / "p" / "stale.py").write_text("")
    compiled.save(tmp_path / "p")
    assert not (tmp_path / "p" / "stale.py").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_a_failure_in_the_middle_leaves_the_old_package(tmp_path, monkeypatch):
    compiled = hybridc.compile(DEMO)
    compiled.save(tmp_path / "p")
    before = {p.name: p.read_bytes() for p in (tmp_path / "p").iterdir()}
    real = os.rename

    def fail(source, target, **options):
        if str(target).endswith("/p"):
            raise OSError(28, "No space left on device")
        return real(source, target, **options)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(DiagnosticError, match="HYB404"):
        write_package({**compiled.source, "model.py": "half"}, tmp_path / "p")
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in (tmp_path / "p").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_the_manifest_says_what_was_compiled():
    manifest = json.loads(hybridc.compile(DEMO, params={"dim": 80}, mesh={"dp": "fsdp(2)"}).source["manifest.json"])
    assert manifest["params"] == {"dim": 80} and manifest["mesh"] == {"dp": "fsdp(2)"} and manifest["target"] == "cpu"
    assert manifest["layers"] == "Ssm * 2 Attn SsmMoe"


def test_the_emitted_spec_says_what_was_set():
    """Compiling it again gives the same module, without setting anything."""
    set_ = hybridc.compile(DEMO, params={"dim": "80"}, mesh={"dp": "fsdp(2)", "ep": "hybrid(node=2, local=2)"})
    assert "param dim = 80" in set_.source["spec.hyb"] and "ep = hybrid(node=2, local=2)" in set_.source["spec.hyb"]
    again = hybridc.compile(set_.source["spec.hyb"])
    assert again.ir == set_.ir and again.source == set_.source


EVIL = [
    '"""; import os; """', "\\\"\\\"\\\"", "a\\nimport os", "{x}", "\\\\", "'''",
]  # fmt: skip


@pytest.mark.parametrize("text", EVIL)
def test_strings_of_a_spec_never_become_code(text):
    """A string reaches emitted text only as part of a docstring that quotes the spec, escaped."""
    import ast

    spec = f"""model m {{
      param dim = 8
      block A {{
        x += a: scale(1 if "{text}" == "x" else 2) >> mlp(8, act="silu" if "{text}" != "y" else "gelu")
        x += rmsnorm()
      }}
      embed = embedding(9)
      layers = A
      head = lm_head(9)
    }}""".replace('""";', '\\"\\"\\";').replace('; """', '; \\"\\"\\"')
    source = hybridc.compile(spec).source["model.py"]
    names = {n.names[0].name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import)}
    assert names == {"torch"} or names == set()
    hybridc.compile(spec).load()


def test_values_keep_the_names_of_the_spec_and_lines_stay_short():
    spec = """model m {
      param dim = 8
      let norm = rmsnorm()
      block A {
        gate = norm >> linear(8)
        x += norm >> (one: linear(8) | two: linear(8) | three: linear(8)) >> gated_rmsnorm(gate=gate)
        x += grp: (linear(8) >> linear(8))
        x = x + x0
      }
      embed = embedding(9)
      layers = A * 2
      head = lm_head(9)
    }"""
    compiled = hybridc.compile(spec)
    source = compiled.source["model.py"]
    assert "gate = self.linear(self.norm(x))" in source
    assert max(map(len, source.splitlines())) <= 120
    net = compiled.load()
    assert "layers.0.grp.linear.weight" in net.state_dict() and "layers.0.grp.linear_2.weight" in net.state_dict()
    net(torch.zeros(1, 3, dtype=torch.int64))
