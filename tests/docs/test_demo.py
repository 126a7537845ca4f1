"""`make demo` in small: compile, report, a few steps of training, a sample."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import hybridc
from hybridc.passes.analysis.cost import parameter_count
from tests.docs.markdown import ROOT

SPEC = ROOT / "specs" / "demo_hybrid.hyb"


def test_spec_is_fine_and_small() -> None:
    sink = hybridc.check(SPEC)
    assert sink.diagnostics == []
    module = hybridc.compile(SPEC).ir
    assert 1_500_000 <= parameter_count(module) <= 2_500_000
    assert {type(n.op).kind for b in module.blocks for n in b.nodes} >= {"attention", "mamba2", "moe", "mlp"}


def test_makefile_runs_what_this_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    demo = re.search(r"^demo:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert demo is not None
    assert [line.strip() for line in demo[1].splitlines()] == [
        "$(BIN)/hybridc compile specs/demo_hybrid.hyb -o build/demo",
        "$(BIN)/hybridc report build/demo",
        "$(BIN)/python examples/demo_train.py build/demo",
    ]


def test_trains_and_writes(tmp_path: Path) -> None:
    hybridc.compile(SPEC).save(tmp_path / "demo")
    words = ["--steps", "3", "--batch", "2", "--seq", "64", "--tokens", "12"]
    command = [sys.executable, str(ROOT / "examples" / "demo_train.py"), str(tmp_path / "demo"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1,866,810 parameters" in done.stdout and "def " in done.stdout
    loss = re.search(r"loss (\d+\.\d+) nats a byte", done.stdout)
    assert loss is not None and 0 < float(loss[1]) < 8
    net = hybridc.compile(SPEC).load(seed=1)
    from safetensors.torch import load_model

    assert load_model(net, str(tmp_path / "demo.safetensors")) == (set(), [])
