"""divide: meshes that cannot be are refused with the sizes that would work for all of the model."""

import pytest

import hybridc

SPEC = """model m {{
  param dim = 48
  block A {{
    x += rmsnorm() >> attention(heads=12, kv_heads=4, head_dim=4)
    x += rmsnorm() >> {}
  }}
  embed = embedding(50, dim)
  layers = A * 4
  head = rmsnorm() >> lm_head(50)
}}
"""


@pytest.mark.parametrize(
    "part, tp, remedy",
    [
        ("swiglu(64)", 3, "tp = 2 or 4"),  # 12 heads divide over 3, 4 key-value heads do not
        ("swiglu(50)", 4, "tp = 2"),
        ("mamba2(heads=6, head_dim=8, state=4)", 4, "tp = 2"),
        ("mamba2(heads=12, head_dim=8, state=4, groups=4, norm=gated_rmsnorm(groups=3))", 2, "tp = 1"),
        ("rg_lru(blocks=8)", 8, "tp = 4"),
        ("moe(experts=4, hidden=18, top_k=2, shared=32)", 4, "tp = 2"),
    ],
)
def test_the_nearest_size_that_works(part, tp, remedy):
    with pytest.raises(hybridc.DiagnosticError) as found:
        hybridc.compile(SPEC.format(part), mesh={"tp": tp})
    diagnostics = found.value.diagnostics
    assert {d.code for d in diagnostics} <= {"HYB214", "HYB215"}
    assert all(d.help.endswith(remedy) or f"{remedy} or" in d.help for d in diagnostics)
    works = int(remedy.removeprefix("tp = ").split()[0])
    assert hybridc.compile(SPEC.format(part), mesh={"tp": works}).ir.axis("tp") == works


@pytest.mark.parametrize(
    "form, remedy", [("8", "use 4 stages or less"), ("interleaved(4, chunks=2)", "use 4 stages or less")]
)
def test_stages(form, remedy):
    with pytest.raises(hybridc.DiagnosticError) as found:
        hybridc.compile(SPEC.format("swiglu(64)"), mesh={"pp": form})
    (diagnostic,) = found.value.diagnostics
    assert diagnostic.code == "HYB217" and diagnostic.help == remedy


def test_an_enormous_axis_is_refused_at_once():
    with pytest.raises(hybridc.DiagnosticError):
        hybridc.compile(SPEC.format("swiglu(64)"), mesh={"tp": 2**20})
