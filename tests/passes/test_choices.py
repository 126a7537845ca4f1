"""Who computes what: libraries by name, what is said of parts without a kernel, and what libraries leave to others."""

import importlib.machinery
import json
import re

import pytest

import hybridc
from hybridc.ir.backends import BACKENDS, LIBRARIES, TARGETS, choose, offering
from hybridc.passes import choices

SPEC = """let norm = rmsnorm()
block M {
  x += norm >> attn: attention(heads=2, kv_heads=1, rope=rope())
  x += norm >> ssm: mamba2(heads=4, head_dim=64, norm=gated_rmsnorm())
  x += norm >> mlp: swiglu(256)
}
model m {
  embed = embedding(64, 128)
  layers = M
  head = norm >> lm_head(64)
}
precision {
  default bf16
  RULES
}
"""


def compiled(rules="", target="cuda:sm90", **options):
    return hybridc.compile(SPEC.replace("RULES", rules), target=target, **options)


def test_our_kernels_come_first_without_libraries():
    code = compiled().source["model.py"]
    assert "gpu.ssd(" in code and "gpu.CausalConv1d(" in code and "libraries" not in code
    for target in TARGETS[1:]:
        found = choose("ssd", {}, target)
        assert (found.backend, found.refusals) == ("triton", ())
    assert choose("ssd", {}, "cpu").backend == "torch"


def test_libraries_in_their_order():
    made = compiled(libraries=["mamba_ssm", "causal_conv1d", "flash_attn"])
    code = made.source["model.py"]
    assert "from hybridc.runtime.libraries import causal_conv1d, flash_attn, mamba_ssm" in code
    for call in ("mamba_ssm.ssd(", "causal_conv1d.CausalConv1d(", "flash_attn.attention("):
        assert call in code
    assert '"mamba_ssm": [\n      "ssd"\n    ]' in made.source["manifest.json"]
    both = [compiled(libraries=names).source["model.py"] for names in (["te", "flash_attn"], ["flash_attn", "te"])]
    assert "te.attention(" in both[0] and "flash_attn.attention(" in both[1]


def test_what_a_library_cannot_compute_goes_to_the_next():
    """flash-attn has no kernels for fp32, and Transformer Engine no recipe with a scale a row."""
    spec = SPEC.replace("default bf16", "default fp32").replace("RULES", "")
    code = hybridc.compile(spec, target="cuda:sm90", libraries=["flash_attn"]).source["model.py"]
    assert "ops.attention(" in code and "flash_attn" not in code
    code = compiled("fp8(row) on **.mlp", libraries=["te"]).source["model.py"]
    assert "gpu.FP8Linear(" in code and "te.FP8Linear(" not in code and "_e4m3_row(" in code


def test_a_librarys_products_quantize_inside():
    """Ours are handed what the norm's kernel has stored quantized; those of te get the norm as it is."""
    ours = compiled("fp8(block128) on **.mlp").source["model.py"]
    theirs = compiled("fp8(block128) on **.mlp", libraries=["te"]).source["model.py"]
    assert "add_rmsnorm_e4m3_block(" in ours and "silu_glu_e4m3_block(" in ours
    assert "te.FP8Linear(" in theirs and "e4m3" not in theirs


def test_libraries_that_are_none():
    with pytest.raises(hybridc.DiagnosticError, match="HYB605"):
        compiled(libraries=["mamba_sm"])
    with pytest.raises(hybridc.DiagnosticError) as caught:
        compiled(libraries=["fla"], target="cpu")
    (found,) = [d for d in caught.value.diagnostics if d.code == "HYB605"]
    assert "has nothing for the target cpu" in found.label and "cuda:sm80" in found.help


def test_libraries_that_are_installed(monkeypatch):
    there = {"mamba_ssm", "transformer_engine"}
    made = importlib.machinery.ModuleSpec("there", None)
    monkeypatch.setattr(choices, "find_spec", lambda name: made if name in there else None)
    code = compiled(libraries=["found"]).source["model.py"]
    assert "mamba_ssm.ssd(" in code and "te.Linear(" in code and "flash_attn" not in code


def test_offers_are_of_parts_that_ops_have():
    known = BACKENDS["torch"].offers.keys() | BACKENDS["triton"].offers.keys()
    for name in LIBRARIES:
        assert BACKENDS[name].offers.keys() <= known
        assert not {"cpu"} & set(BACKENDS[name].targets)
    assert offering("ssd") == ["mamba_ssm"]


def test_errors_name_op_target_and_remedy():
    for rules, part in (("fp8(mx) on **.mlp", "fp8 linear"), ("fp8(block128) on **.ssm", "fp8 linear")):
        with pytest.raises(hybridc.DiagnosticError) as caught:
            compiled(rules, target="cuda:sm80")
        (found,) = [d for d in caught.value.diagnostics if d.code == "HYB606"]
        assert re.match(rf"`\w+`: nothing computes its {part} on cuda:sm80", found.label)
        assert found.help.startswith("compile for cpu or cuda:sm90 or cuda:sm100, or keep `") and found.span.line > 0


def test_a_library_that_computes_nothing_says_so():
    """fla has no part of this model; flash-attn has, and cannot serve it in fp32."""
    for given, name, why in (("bf16", "fla", "it has"), ("fp32", "flash_attn", "its kernels are for bf16 and fp16")):
        spec = SPEC.replace("default bf16", f"default {given}").replace("RULES", "")
        made = hybridc.compile(spec, target="cuda:sm90", libraries=[name])
        (found,) = [d for d in made.warnings if d.code == "HYB607"]
        assert f"`{name}` computes nothing of this model" in found.label and why in found.label
    assert not [d for d in compiled(libraries=["mamba_ssm"]).warnings if d.code == "HYB607"]


def test_the_manifest_has_the_reasons():
    made = compiled("fp8(row) on **.mlp", libraries=["te"])
    found = json.loads(made.source["manifest.json"])["refusals"]
    assert found == {"te, mlp: fp8_linear": ["it has no recipe with a scale for each row"]}


MOE = """block E { x += rmsnorm() >> moe(experts=4, hidden=64, top_k=2) }
model m {
  embed = embedding(64, 128)
  layers = E
  head = lm_head(64)
}
precision {
  default bf16
  RULES
}
"""


@pytest.mark.parametrize("first", ["tensor", "row", "mx", "block128"])
def test_experts_in_two_formats_are_served_in_both_or_not_at_all(first):
    """Whichever comes first in the alphabet: ours remember no former steps, te has no recipe with a scale a row."""
    for a, b in (("gate_up", "down"), ("down", "gate_up")):
        rules = f"fp8({first}) on **.{a}\n  fp8(delayed) on **.{b}"
        with pytest.raises(hybridc.DiagnosticError, match="HYB606"):
            hybridc.compile(MOE.replace("RULES", rules), target="cuda:sm90")
        rules = f"fp8(tensor) on **.{a}\n  fp8(row) on **.{b}"
        made = hybridc.compile(MOE.replace("RULES", rules), target="cuda:sm90", libraries=["te"])
        assert "gpu.Experts(" in made.source["model.py"] and "te.Experts(" not in made.source["model.py"]
