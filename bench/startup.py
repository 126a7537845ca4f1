"""Whole-process times of the command line: median of ten runs each, against what the project promises.

Run with `make bench`. Exits with 1 where a promise is broken, so that it can serve as a check.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 10

DEEP = """model deep {
  let norm = rmsnorm()
  block M { x += norm >> mamba2(heads=8, state=64); x += norm >> swiglu(1024) }
  block A { x += norm >> attention(heads=8, rope=rope()); x += norm >> swiglu(1024) }
  block E { x += norm >> mamba2(heads=8, state=64); x += norm >> moe(experts=8, hidden=512, top_k=2) }
  embed = embedding(32000, 256)
  layers = (M M M A E) * 200
  head = norm >> lm_head(32000)
}
"""


def median(arguments: list[str]) -> float:
    """Seconds that `hybridc ARGUMENTS` takes as a process of its own."""
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "hybridc.cli", *arguments], cwd=ROOT, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> int:
    spec = "specs/falcon_h1_0_5b.hyb"
    with tempfile.TemporaryDirectory() as folder:
        deep = Path(folder) / "deep.hyb"
        deep.write_text(DEEP, encoding="utf-8")
        cases = [
            ("check falcon_h1_0_5b", ["check", spec], 0.4),
            ("fmt --check falcon_h1_0_5b", ["fmt", "--check", spec], 0.4),
            ("compile falcon_h1_0_5b", ["compile", spec, "-o", f"{folder}/falcon"], 1.0),
            ("compile 1,000 layers of three kinds", ["compile", str(deep), "-o", f"{folder}/deep"], 1.5),
        ]
        slow = 0
        for title, arguments, limit in cases:
            seconds = median(arguments)
            slow += seconds > limit
            print(
                f"{title:40s} {1000 * seconds:7.0f} ms   (at most {1000 * limit:.0f}){'  TOO SLOW' * (seconds > limit)}"
            )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
