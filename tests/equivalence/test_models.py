"""Whole models of public families, in the sizes of their tiny checkpoints, on meshes of 2, 4 and 8 ranks."""

from pathlib import Path

import pytest

import hybridc
from hybridc.frontend.document import print_spec
from tests.equivalence.cases import Case
from tests.equivalence.run import differences

GOLDENS = Path(__file__).parents[1] / "frontend" / "hf" / "goldens"

MODELS = {
    "falcon_h1_biases": {"tp": "2"},
    "falcon_h1_gate_first": {"dp": "fsdp(2)", "tp": "2"},
    "nemotron_h_letters": {"pp": "2", "tp": "2"},
    "jamba_aux": {"dp": "replicate(2)", "tp": "2"},
    "qwen3_next_dense": {"tp": "2", "dp": "fsdp(2)"},
    "bamba_biases": {"pp": "2", "dp": "replicate(2)"},
    "zamba2_two_sets": {"pp": "2", "dp": "2", "tp": "2"},
    "granitemoehybrid_biases": {"dp": "fsdp(4)"},
    "kimi_linear_groups": {"tp": "2"},
    "minimax_plain": {"tp": "2", "dp": "replicate(2)"},
    "deepseek_v3_yarn": {"tp": "4"},
    "gpt_oss_aux": {"pp": "2", "tp": "2"},
    "lfm2_moe_biased": {"dp": "fsdp(2)", "tp": "2"},
    "recurrent_gemma_wide": {"tp": "2"},
    "mamba2_biases": {"dp": "fsdp(2)", "tp": "4"},
    "gemma2_layer_types": {"pp": "2", "tp": "2"},
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model(name):
    mesh = MODELS[name]
    spec = print_spec(hybridc.import_hf(GOLDENS / name))
    axes = tuple((axis, mesh[axis]) for axis in ("pp", "dp", "tp") if axis in mesh)
    case = Case((), (), "", axes, "packed", 2, 11, 2, 5)
    assert not differences(case, spec)
