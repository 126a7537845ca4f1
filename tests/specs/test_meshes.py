"""Published specs on meshes: what is emitted for them, and how many bytes their layers send."""

import os
import time
from pathlib import Path

import pytest

import hybridc
from hybridc.ir.ops.collectives import Collective
from hybridc.ir.text import parse_module, print_module

SPECS = Path(__file__).parents[2] / "specs"

MESHES = {
    "llama_1b": {"tp": 2},
    "falcon_h1_0_5b": {"dp": "fsdp(2)", "tp": 2},
    "mixtral_8x7b": {"dp": "replicate(4)", "tp": 2},
    "nemotron_h_8b": {"pp": 4, "dp": "fsdp(8)", "tp": 8},
    "qwen3_next_80b_a3b": {"tp": 4},
    "zamba2_1_2b": {"pp": 2, "tp": 2},
}

IN, OUT = ("all_gather", "reduce_scatter"), ("reduce_scatter", "all_gather")

# Megatron's layer gathers in front of its attention and its MLP (or Mamba, or experts), and scatters behind each
LAYERS = {
    ("llama_1b", "Layer"): [IN, OUT, IN, OUT],
    ("falcon_h1_0_5b", "H"): [IN, OUT, IN, OUT],  # attention and Mamba-2 side by side share theirs
    ("mixtral_8x7b", "Layer"): [IN, OUT, IN, OUT],
}


@pytest.mark.parametrize("name", sorted(MESHES))
def test_emitted_code_and_ir(name):
    """Run with HYBRIDC_UPDATE_GOLDEN=1 to write them anew, and review the difference."""
    made = hybridc.compile(SPECS / f"{name}.hyb", mesh=MESHES[name])
    golden = {
        "ir": print_module(made.ir),
        "model.py": made.source["model.py"],
        "parallel.py": made.source["parallel.py"],
    }
    for kind, text in golden.items():
        path = SPECS / "golden" / "meshes" / f"{name}.{kind}"
        if os.environ.get("HYBRIDC_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.read_text() == text, f"{path.name} has changed"
    assert parse_module(golden["ir"]) == made.ir


@pytest.mark.parametrize("name, block", sorted(LAYERS))
def test_a_layer_sends_no_more_than_a_hand_written_one(name, block):
    made = hybridc.compile(SPECS / f"{name}.hyb", mesh=MESHES[name]).ir
    moves = [n.op for n in made.by_name[block].nodes if isinstance(n.op, Collective)]
    assert [(m.kind, m.back) for m in moves] == LAYERS[name, block]
    width = dict(made.params)["dim"]
    # (n - 1) / n of fp32 activations each, forward and backward
    assert sum(m.sends + m.sends_back for m in moves) == len(moves) * 2 * (1 - 1 / 2) * width * 4


def test_a_thousand_gpus_take_no_longer():
    """The whole compile of a published size: it works on distinct blocks, so that it takes a tenth of the three seconds
    of a processor that it may."""
    start = time.process_time()
    made = hybridc.compile(SPECS / "nemotron_h_8b.hyb", mesh={"pp": 4, "dp": "fsdp(32)", "tp": 8})
    assert time.process_time() - start < 3.0
    assert made.ir.axis("dp") == 32
