"""What mamba-ssm (2.3.2), causal-conv1d (1.7.0), fla (0.6.0) and flash-attn (2.8.3) are not asked for: what their
sources refuse."""

import subprocess
import sys

import pytest

from hybridc.ir.backends import BACKENDS, choose

CUDA = ("cuda:sm80", "cuda:sm90", "cuda:sm100")


def reason(library, part, **facts):
    return BACKENDS[library].offers[part].unfit({"dtype": "bf16", "capability": 90, **facts})


FITS = {
    ("mamba_ssm", "ssd"): {"heads": 24, "head_dim": 64, "state": 128, "groups": 8},
    ("mamba_ssm", "selective_scan"): {"channels": 1536, "state": 256},
    ("mamba_ssm", "gated_rmsnorm"): {"width": 32768, "groups": 1, "gate_first": False, "act": "silu"},
    ("causal_conv1d", "causal_conv1d"): {"taps": 4, "channels": 1792},
    ("fla", "gated_delta_rule"): {"key_dim": 256, "value_dim": 512, "per_channel": True},
    ("fla", "lightning_attention"): {"heads": 64, "head_dim": 128},
    ("fla", "rg_lru"): {"channels": 2560},
    ("flash_attn", "attention"): {"head_dim": 256, "value_dim": 256, "window": 128, "softcap": 50.0, "sinks": False},
}

UNFIT = [
    ("mamba_ssm", "ssd", {"dtype": "fp32"}, "TF32"),
    ("mamba_ssm", "selective_scan", {"state": 257}, "257"),
    ("mamba_ssm", "gated_rmsnorm", {"act": "sigmoid"}, "sigmoid"),
    ("mamba_ssm", "gated_rmsnorm", {"width": 32769}, "32768"),
    ("mamba_ssm", "gated_rmsnorm", {"width": 16385, "dtype": "fp32"}, "16384"),
    ("causal_conv1d", "causal_conv1d", {"taps": 5}, "not 5"),
    ("causal_conv1d", "causal_conv1d", {"channels": 1796}, "multiple of 8"),
    ("fla", "gated_delta_rule", {"dtype": "fp32"}, "TF32"),
    ("fla", "gated_delta_rule", {"key_dim": 258}, "256"),
    ("fla", "gated_delta_rule", {"value_dim": 127}, "127"),
    ("fla", "lightning_attention", {"head_dim": 127}, "127"),
    ("fla", "lightning_attention", {"dtype": "fp32"}, "TF32"),
    ("flash_attn", "attention", {"dtype": "fp32"}, "fp32"),
    ("flash_attn", "attention", {"head_dim": 264, "value_dim": 264}, "264"),
    ("flash_attn", "attention", {"value_dim": 128}, "128"),
    ("flash_attn", "attention", {"sinks": True}, "sinks"),
    ("flash_attn", "attention", {"dropout": 0.1}, "dropout"),
]


@pytest.mark.parametrize(("library", "part"), FITS)
@pytest.mark.parametrize("target", CUDA)
def test_what_fits_is_chosen(library, part, target):
    assert reason(library, part, **FITS[library, part]) == ""
    assert choose(part, FITS[library, part], target, (library,)).backend == library
    assert choose(part, FITS[library, part], "cpu", (library,)).backend != library


@pytest.mark.parametrize(("library", "part", "change", "said"), UNFIT)
def test_what_does_not_fit_says_why(library, part, change, said):
    facts = {**FITS[library, part], **change}
    assert said in reason(library, part, **facts)
    choice = choose(part, facts, "cuda:sm90", (library,))
    assert choice.backend != library and said in dict(choice.refusals)[library]


def test_a_norm_of_groups_is_as_wide_as_one_of_them():
    assert not reason("mamba_ssm", "gated_rmsnorm", width=65536, groups=2)


def test_choices_are_made_without_torch_and_the_libraries():
    code = "import sys, hybridc.ir.backends; print([m for m in ('torch', 'mamba_ssm', 'fla') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
