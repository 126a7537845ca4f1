"""Bytes that one layer writes in a forward, per token: in bf16 and in FP8, op by op and with fused kernels.

    python bench/traffic.py

Counted on emitted modules at published sizes without a device: nothing is timed, and the numbers are the same on any
machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hybridc
from hybridc.ahead.dry_run import TARGETS
from hybridc.ahead.traffic import written

SPECS = Path(__file__).resolve().parent.parent / "specs"
MODELS = ("llama_1b", "falcon_h1_0_5b", "granite_4_h_tiny")
TARGET = "cuda:sm90"
UNFUSED = ("simplify", "divide")
"""The optional passes but `fuse`."""


def layers(model: str, rule: str, *, fused: bool) -> dict[str, float]:
    """Bytes a token by class of layer."""
    text = (SPECS / f"{model}.hyb").read_text(encoding="utf-8") + f"\nprecision {{\n  default bf16\n{rule}\n}}\n"
    made = hybridc.compile(text, target=TARGET, passes=None if fused else UNFUSED)
    return written(made.skeleton(), TARGETS[TARGET])


def table() -> list[str]:
    """The table of docs/precision.md."""
    heads = ("layer", "bf16, op by op", "bf16, fused", "FP8, op by op", "FP8, fused", "FP8, fused to op by op")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    fp8 = "  fp8(block128) on layers.**"
    for model in MODELS:
        found = [layers(model, rule, fused=fused) for rule in ("", fp8) for fused in (False, True)]
        for name in found[0]:
            cells = [f[name] for f in found]
            shown = " | ".join(f"{c / 1024:.1f} KiB" for c in cells)
            rows.append(f"| {model}, `{name}` | {shown} | {cells[3] / cells[2]:.2f} |")
    return rows


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
