"""`hybridc compile --emit cubin` and `hybridc report --kernels`, as a user meets them: binaries, manifest, table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridc.codegen.cubin import REGISTER_LIMIT, SHARED_LIMIT, inspect
from hybridc.ir.backends import TARGETS, capability

ROOT = Path(__file__).resolve().parent.parent.parent

SPEC = """model small {
  let norm = rmsnorm()
  block A {
    x += norm >> attention(heads=2, rope=rope())
    x += norm >> swiglu(128)
  }
  embed = embedding(256, 64)
  layers = A
  head = norm >> lm_head(256)
}
precision { default bf16 }
"""

PUBLISHED = ("granite_4_h_tiny", "falcon_h1_0_5b") if os.environ.get("HYBRIDC_EXAMPLES") else ()
"""What `make test-all` compiles too, for each GPU; it takes a minute or two each."""

PACKAGES = [("small", "cuda:sm90"), *((name, target) for name in PUBLISHED for target in TARGETS if target != "cpu")]


def hybridc(*words, width=120):
    """Status, standard output and standard error of the command, where kernels are not interpreted."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT), "COLUMNS": str(width)}
    command = [sys.executable, "-W", "ignore", "-m", "hybridc.cli", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "small.hyb"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module", params=PACKAGES, ids=lambda p: f"{p[0]}-{p[1]}")
def package(request, spec, tmp_path_factory):
    """A package with its kernels, its target, and what was said as it was compiled."""
    name, target = request.param
    source, out = spec if name == "small" else ROOT / "specs" / f"{name}.hyb", tmp_path_factory.mktemp(name) / "out"
    status, said, err = hybridc("compile", source, "--target", target, "--emit", "cubin", "-o", out)
    assert status == 0 and not said, err
    return out, target, err


def rows_of(folder):
    return json.loads((folder / "manifest.json").read_text())["kernels"]


def test_binaries_are_those_of_the_manifest(package):
    out = package[0]
    rows = rows_of(out)
    assert {f"{row['name']}.cubin" for row in rows} == {p.name for p in (out / "cubins").iterdir()}
    assert len({row["name"] for row in rows}) == len(rows) > 5
    for row in rows:
        made = inspect((out / "cubins" / f"{row['name']}.cubin").read_bytes(), row["shared"])
        assert made.cubin.startswith(b"\x7fELF")
        assert (row["registers"], row["stack"], row["spills"]) == (made.registers, made.stack, made.spills)
        assert row["instructions"] == made.mix and row["launched_in"]
        assert 0 < row["registers"] <= REGISTER_LIMIT


def test_all_fit(package):
    out, target, err = package
    limit = SHARED_LIMIT[capability(target)]
    assert not {r["name"]: r for r in rows_of(out) if not r["fits"] or r["spills"] or r["shared"] > limit}
    assert "HYB610" not in err


def test_the_report_has_a_line_for_each(package):
    out, target, _ = package
    rows = rows_of(out)
    status, table, err = hybridc("report", out, "--kernels")
    assert status == 0 and not err
    assert f": {len(rows)} kernels on {target}" in table.splitlines()[0]
    shown = {words[0]: words[1:] for line in table.splitlines() if (words := line.split())}
    for row in rows:
        warps = str(row["options"].get("num_warps", 4))
        kib = f"{row['shared'] / 1024:.1f}"
        want = [warps, str(row["registers"]), kib, str(row["stack"]), str(row["spills"])]
        assert shown[row["name"]][:5] == want and shown[row["name"]][-1] == "yes"


def test_what_a_training_step_and_decoding_launch_is_there(package):
    runs = {place["run"] for row in rows_of(package[0]) for place in row["launched_in"]}
    assert runs == {"forward", "backward", "prompt", "step"}


def test_a_kernel_that_does_not_fit_is_a_warning(package):
    """In a manifest that says so, as an older compiler could have written it."""
    path = package[0] / "manifest.json"
    before = path.read_text()
    manifest = json.loads(before)
    first, second = manifest["kernels"][:2]
    first |= {"spills": 12, "fits": False}
    second |= {"shared": 1 << 20, "fits": False}
    path.write_text(json.dumps(manifest))
    try:
        status, table, err = hybridc("report", package[0], "--kernels")
    finally:
        path.write_text(before)
    assert status == 0 and err.count("warning[HYB610]") == 2
    assert "12 loads and stores of spilled registers" in err and "1,048,576 bytes of shared memory" in err
    last = {words[0]: words[-1] for line in table.splitlines() if (words := line.split())}
    assert last[first["name"]] == last[second["name"]] == "no"


def test_a_target_without_kernels(spec, tmp_path):
    """The CPU, whether it is named, a package's, or what a spec without a target is compiled for."""
    assert hybridc("compile", spec, "-o", tmp_path / "cpu")[0] == 0
    for words in ((spec,), (spec, "--target", "cpu"), (tmp_path / "cpu",)):
        status, table, err = hybridc("report", *words, "--kernels")
        assert status != 0 and not table and "HYB613" in err and "--target cuda:sm90" in err
    status, _, err = hybridc("compile", spec, "--emit", "cubin", "-o", tmp_path / "none")
    assert status == 2 and not (tmp_path / "none").exists()
