"""What `hybridc doctor` makes of installs that are fine, missing and broken in the ways that happen."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hybridc import doctor
from hybridc.doctor import Diagnosis, Outcome, as_json, as_text, diagnose, run_python, why

H100 = json.dumps({"cuda": "13.0", "devices": [["NVIDIA H100", [9, 0], 80 * 2**30]]})
FINE = Outcome(0, "", "")
NO_GPU = Outcome(0, json.dumps({"cuda": None, "devices": []}) + "\n", "")


def look(outcomes: dict[str, Outcome]) -> Diagnosis:
    """A machine on which exactly the named packages are installed, with the outcome of importing each."""
    by_code = {(doctor._TORCH if p.name == "torch" else f"import {p.module}"): p.name for p in doctor.PACKAGES}

    def version(distributions: Sequence[str]) -> str:
        names = {p.name for p in doctor.PACKAGES if p.distributions == tuple(distributions)}
        return "1.2.3" if names & set(outcomes) else ""

    return diagnose(run=lambda code: outcomes[by_code[code]], version=version)


def healthy() -> dict[str, Outcome]:
    return {p.name: NO_GPU if p.name == "torch" else FINE for p in doctor.PACKAGES if p.needed}


def test_healthy_without_gpu() -> None:
    found = look(healthy())
    assert found.healthy
    assert {t.name: t.runs for t in found.targets} == {
        "cpu": True,
        "cuda:sm80": False,
        "cuda:sm90": False,
        "cuda:sm100": False,
    }
    states = {f.name: f.state for f in found.packages}
    assert states["torch"] == "ok" and states["flash-attn"] == "missing"
    assert [b.name for b in found.backends if b.usable] == ["torch"]


def test_gpu_makes_its_target_run() -> None:
    found = look({**healthy(), "torch": Outcome(0, f"a banner\n{H100}\n", "")})
    assert found.cuda == "13.0" and found.devices[0].name == "NVIDIA H100"
    assert [t.name for t in found.targets if t.runs] == ["cpu", "cuda:sm90"]
    install = next(f.install for f in found.packages if f.name == "nvshmem")
    assert install.endswith("nvshmem4py-cu13")


@pytest.mark.parametrize("name", [p.name for p in doctor.PACKAGES if p.needed and not p.linux])
def test_needed_and_missing(name: str) -> None:
    outcomes = healthy()
    del outcomes[name]
    found = look(outcomes)
    assert not found.healthy
    (finding,) = [f for f in found.packages if f.name == name]
    assert finding.state == "missing" and finding.install.startswith("python -m pip install ")


def test_broken_extension_is_named_and_rebuilt() -> None:
    error = "Traceback (most recent call last):\n  ...\nImportError: selective_scan.so: undefined symbol: _ZN3c10\n"
    found = look({**healthy(), "mamba-ssm": Outcome(1, "", error)})
    (finding,) = [f for f in found.packages if f.name == "mamba-ssm"]
    assert finding.state == "broken" and finding.version == "1.2.3"
    assert "built for another torch" in finding.detail and "_ZN3c10" in finding.detail
    assert "--force-reinstall" in finding.install and "--no-build-isolation" in finding.install
    assert found.healthy  # nothing needed is broken


@pytest.mark.parametrize(
    ("outcome", "word", "rebuild"),
    [
        (Outcome(None, "", ""), "did not end", False),
        (Outcome(-11, "", ""), "signal 11", True),
        (Outcome(1, "", "ImportError: libcudart.so.12: cannot open shared object file: No such file"), "CUDA", True),
        (Outcome(1, "", "ImportError: /lib/libm.so.6: version `GLIBC_2.38' not found"), "system library", False),
        (Outcome(1, "", "ModuleNotFoundError: No module named 'einops'"), "needs is missing", False),
        (Outcome(1, "", "ValueError: something else"), "something else", True),
        (Outcome(3, "", ""), "exit status 3", True),
    ],
)
def test_reasons(outcome: Outcome, word: str, rebuild: bool) -> None:
    sentence, again = why(outcome)
    assert word in sentence and again == rebuild and "\n" not in sentence


def test_torch_that_breaks_leaves_no_targets() -> None:
    found = look({**healthy(), "torch": Outcome(1, "", "OSError: libcublas.so.13: cannot open shared object file")})
    assert not found.healthy
    assert not any(t.runs for t in found.targets)
    assert not any(b.usable for b in found.backends)


def test_text_and_json() -> None:
    found = look({**healthy(), "torch": Outcome(0, H100, ""), "deepep": Outcome(-6, "", "")})
    text = as_text(found, width=100, color=False)
    for part in ("NVIDIA H100", "compute capability 9.0", "runs here", "Broken", "signal 6", "pip install", "Optional"):
        assert part in text
    assert "\x1b" not in text
    data = json.loads(as_json(found))
    assert data["healthy"] is True and data["devices"][0]["capability"] == [9, 0]


def test_imports_run_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run_python("import json; print(json.dumps(1))") == Outcome(0, "1\n", "")
    assert run_python("import os; os.abort()").status == -6
    assert run_python("import time; time.sleep(9)", timeout=0.5).status is None
    assert "No module named" in run_python("import no_such_module_here").err


def test_this_machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from hybridc import cli

    monkeypatch.setattr(sys, "argv", ["hybridc", "doctor", "--format", "json"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    data = json.loads(capsys.readouterr().out)
    assert end.value.code == 0 and data["healthy"]
    assert next(f["version"] for f in data["packages"] if f["name"] == "torch")
