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
FORMS = ((16384, "bf16"), (16384, "fp32"), (32768, "bf16"))
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
    runtime = {"hybridc.runtime.kernels.rowwise", "hybridc.runtime.kernels.stored"}
    assert found == {"functools", "torch", "triton", "torch.autograd.function", *runtime}


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


def chunks():
    """The forms to compile, some at a time."""
    if not ALL:
        return [[use(name) for name in FIRST]]
    uses = [use(name) for name in (*GROUPS, *ROUTERS)]
    wide = [use(name, width, dtype) for name in WIDE for width, dtype in FORMS]
    return [(uses + wide)[i : i + 10] for i in range(0, len(uses + wide), 10)]


@pytest.mark.parametrize("part", range(len(chunks())))
def test_kernels_fit(part, tmp_path, monkeypatch):
    """Compiled for a device: no spills, shared memory as there is."""
    name = f"emitted_ahead_{part}"
    (tmp_path / f"{name}.py").write_text(emit_kernels(chunks()[part], "Compiled ahead of time."))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check_fits(name)


def test_a_row_that_is_one_block_is_read_once(tmp_path, monkeypatch):
    """Though the text reads it for every sum: 4096 numbers of 256 threads are two loads of 16 bytes a thread and
    tensor, and two stores, or four of what is in fp32; and one for each number of a row."""
    text = emit_kernels([use("rmsnorm"), use("add_layernorm")], "Compiled ahead of time.")
    (tmp_path / "emitted_once.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = compiled("emitted_once")
    wanted = {
        "rmsnorm_forward": 2 * 2 + 2 + 1,  # x, weight; y; rstd
        "rmsnorm_backward": 3 * 2 + 1 + 2 + 4,  # x, weight, dy; rstd; dx; dweight
        "add_layernorm_forward": 4 * 2 + 2 * 2 + 2,  # x, residual, weight, bias; h, y; center, rstd
    }
    assert {name: found[f"{name}[4096 bf16]:90"]["mix"]["global"] for name in wanted} == wanted
