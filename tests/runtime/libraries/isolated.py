"""Runs checks that need libraries' sources, with stand-ins for what cannot run here, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(sys.prefix) / "libraries"
"""Where `make install` puts the Python sources of libraries."""


def check(name: str, least: int) -> None:
    """All tests of checks/NAME.py pass, and there are `least` of them or more."""
    assert LIBRARIES.is_dir(), "run `make install`: the libraries' sources are missing"
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "FLA_DISABLE_BACKEND_DISPATCH": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(LIBRARIES))),
        "PYTEST_ADDOPTS": "",
    }
    words = [sys.executable, "-m", "pytest", "-p", "tests.runtime.libraries.interpreted", "-p", "no:cacheprovider"]
    words += ["-o", "python_files=*.py", "-W", "ignore", f"tests/runtime/libraries/checks/{name}.py"]
    for variable in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        environment.pop(variable, None)
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed is not None and int(passed[1]) >= least, done.stdout[-2000:]
