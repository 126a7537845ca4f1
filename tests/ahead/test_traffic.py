"""Bytes that layers write, against numbers worked out by hand, and the table in the docs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

SPEC = """block L {
  x += rmsnorm() >> attention(heads=16, kv_heads=4, head_dim=32, rope=rope())
  x += rmsnorm() >> swiglu(1024)
}
model m {
  embed = embedding(64, 512)
  layers = L * 2
  head = rmsnorm() >> lm_head(64)
}
precision {
  default bf16
  RULES
}
"""

SCRIPT = """
import sys
import hybridc
from hybridc.ahead.dry_run import TARGETS
from hybridc.ahead.traffic import written
passes = None if sys.argv[2] == "fused" else ("simplify", "divide")
made = hybridc.compile(sys.argv[1], target="cuda:sm90", passes=passes)
print(written(made.skeleton(), TARGETS["cuda:sm90"])["L"])
"""


def apart(*words):
    """What a command prints in a process where kernels are not interpreted."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def count(rules, how):
    return float(apart("-c", SCRIPT, SPEC.replace("RULES", rules), how))


# numbers a token: each norm's result and that of its group's sum, q k v, q and k turned, the attention's result and it
# with heads side by side, two projections into the stream, gate and up, their product, and the last sum
NORM, QKV, TURNED, ATTENTION, STREAM, GATE_UP, INSIDE = 512, 768, 640, 512, 512, 2048, 1024
STATISTICS = 4 + 4  # a norm keeps one fp32 number


def test_fused_in_bf16():
    numbers = NORM + QKV + TURNED + 2 * ATTENTION + STREAM + (STREAM + NORM) + GATE_UP + INSIDE + STREAM + STREAM
    assert count("", "fused") == pytest.approx(2 * numbers + STATISTICS, rel=0.02)


def test_fused_in_fp8():
    """The norms' results and the MLP's inside are never written in bf16; what attention gives is, and in FP8 too."""
    numbers = QKV + TURNED + 2 * ATTENTION + STREAM + STREAM + GATE_UP + STREAM + STREAM
    stored = NORM + ATTENTION + NORM + INSIDE
    scales = 4 * stored / 128
    found = count("fp8(block128) on layers.**", "fused")
    assert found == pytest.approx(2 * numbers + stored + scales + STATISTICS, rel=0.02)


def test_op_by_op_writes_more():
    assert count("fp8(block128) on layers.**", "op by op") > 1.5 * count("fp8(block128) on layers.**", "fused")


def test_the_table_in_the_docs():
    made = apart(str(ROOT / "bench" / "traffic.py"))
    assert made.strip() in (ROOT / "docs" / "precision.md").read_text(encoding="utf-8")
