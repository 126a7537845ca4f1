"""Backends' data and adapters agree."""

import os
import subprocess
import sys

from tests.runtime.libraries.isolated import ROOT, check


def test_offers():
    check("offers", least=9)


def test_an_adapter_without_its_library_says_what_is_missing():
    code = "import hybridc.runtime.libraries.flash_attn"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode and "compiled for flash-attn, which cannot be imported" in done.stderr
