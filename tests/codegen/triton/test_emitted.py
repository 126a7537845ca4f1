"""The text of kernels.py: the same bytes every time, clean, and fit for a device."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridc.codegen.triton.groups import GROUPS, ROUTERS
from hybridc.codegen.triton_code import Use, emit_kernels
from tests.codegen.triton.emitted import use
from tests.runtime.kernels.ahead import check_fits, compiled

GOLDEN = Path(__file__).parent / "golden_kernels.py"

FIRST = (
    "rmsnorm", "add_rmsnorm", "add_zero_centered_rmsnorm", "add_layernorm", "rmsnorm_e4m3_block",
    "add_rmsnorm_e4m3_row", "rmsnorm_int8_row", "silu_glu", "gelu_glu", "gelu_tanh_glu", "relu2_glu", "clamped_swiglu",
    "silu_glu_e4m3_block", "gated_rmsnorm_silu", "rmsnorm_gated_sigmoid", "head_rmsnorm", "rope_halves", "rope_pairs",
    "softmax_router", "sigmoid_bias_router", "softcap", "dequantize_row", "sigmoid_row_gate", "layer_scaled_add",
)  # fmt: skip
"""What `make test` compiles; `make test-all` compiles all."""

WIDE = ("add_layernorm", "rmsnorm", "add_rmsnorm_e4m3_block", "softmax", "silu_glu_e4m3_row")
ALL = bool(os.environ.get("HYBRIDC_EXAMPLES"))


def emitted():
    return emit_kernels(map(use, (*GROUPS, *ROUTERS)), "All groups, emitted.")


def test_golden():
    if os.environ.get("HYBRIDC_UPDATE_GOLDEN"):
        GOLDEN.write_text(emitted())
    assert emitted() == GOLDEN.read_text()


def test_the_same_in_another_process_and_order():
    script = (
        "from hybridc.codegen.triton.groups import GROUPS, ROUTERS\n"
        "from hybridc.codegen.triton_code import emit_kernels\n"
        "from tests.codegen.triton.emitted import use\n"
        "print(emit_kernels(map(use, reversed((*GROUPS, *ROUTERS))), 'All groups, emitted.'), end='')"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == GOLDEN.read_text()


def test_what_it_imports():
    found = set()
    for node in ast.walk(ast.parse(GOLDEN.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    assert found == {"torch", "triton", "torch.autograd.function", "hybridc.runtime.kernels.rowwise"}


def test_lint():
    words = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "E,F,W",
        "--line-length",
        "120",
        str(GOLDEN),
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_only_what_is_in_use():
    text = emit_kernels([Use("relu", 64)], "One group.")
    assert text.count("@triton.jit") == 2 and "rsqrt" not in text and "    at_least,\n" in text
    assert "form(relu_forward, 64, columns=True)" in text


def test_a_group_that_is_none():
    with pytest.raises(KeyError, match="rmsnorms"):
        emit_kernels([Use("rmsnorms", 64)], "")


def test_kernels_fit(tmp_path, monkeypatch):
    """Compiled for a device: no spills, shared memory as there is."""
    uses = [use(name) for name in ((*GROUPS, *ROUTERS) if ALL else FIRST)]
    uses += [
        use(name, width, dtype) for name in WIDE * ALL for width in (8192, 16384, 32768) for dtype in ("bf16", "fp32")
    ]
    (tmp_path / "emitted_ahead.py").write_text(emit_kernels(uses, "Compiled ahead of time."))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check_fits("emitted_ahead")
    each_once(compiled("emitted_ahead"))


def each_once(found):
    """A row that is one block is read once, though the text reads it for every sum: 4096 numbers of 256 threads are
    two loads of 16 bytes a thread and tensor, or four in fp32."""
    vectors = {"rmsnorm_forward": 2 + 2, "add_layernorm_forward": 4 * 2 + 2, "rmsnorm_backward": 3 * 2}
    stored = {"rmsnorm_forward": 2 + 1, "add_layernorm_forward": 2 + 2, "rmsnorm_backward": 2 + 4}
    for name, loads in vectors.items():
        of_rows = 1 if name.endswith("backward") else 0
        assert found[f"{name}[4096 bf16]:90"]["mix"]["global"] == loads + of_rows + stored[name], name
