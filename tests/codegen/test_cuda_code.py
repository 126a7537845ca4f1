"""Modules emitted for GPUs, under Triton's interpreter, against the same spec's for the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hybridc
from hybridc.codegen.loader import load_source
from hybridc.runtime.context import PackedSeq

GOLDENS = Path(__file__).parents[1] / "frontend" / "hf" / "goldens"
SOME = (
    "bitnet_ternary",
    "deepseek_v3_yarn",
    "falcon_h1_gate_first",
    "gemma2_layer_types",
    "gpt_oss_aux",
    "jamba_aux",
    "kimi_linear_groups",
    "minimax_factors",
    "nemotron_h_latent",
    "qwen3_next_interval",
    "recurrent_gemma_narrow",
    "zamba2_two_sets",
)
"""Each op of the language is in one of them."""
FAMILIES = sorted(p.name for p in GOLDENS.iterdir()) if os.environ.get("HYBRIDC_EXAMPLES") else SOME

ROUNDED = (2e-2, 5e-2)
"""Bounds for results and gradients in a number format: what lies within a rounding error of the border between two of
its numbers may fall on either side, and all that reads it sees the difference."""

SPEC = """
let norm = rmsnorm()

block A {
  x += norm >> attn: attention(heads=4, kv_heads=2, rope=rope(), gated=true)
  x += norm >> mlp: swiglu(96)
}
block S {
  x += norm >> (ssm: mamba2(heads=4, head_dim=16, state=16, norm=gated_rmsnorm()) | lin: linear(64))
  x += norm >> moe: moe(experts=4, hidden=32, top_k=2, shared=32) >> scale(0.5)
}
block L {
  x += norm >> delta: gated_delta_net(heads=2, key_dim=16, value_dim=16, norm=gated_rmsnorm(gate_first=false))
  x += norm >> mlp: mlp(96, act=relu2, down_norm=rmsnorm())
}

model m {
  let dim = 64
  embed = embedding(50, dim)
  layers = A S L
  head = norm >> lm_head(50, softcap=20.0)
}

precision { RULES }
"""


def both(source, **options):
    """The net for the CPU and the one for a GPU, with the same weights."""
    cpu = hybridc.compile(source).load(seed=1)
    made = hybridc.compile(source, target="cuda:sm90", **options)
    gpu = made.load(init=False)
    gpu.load_state_dict(cpu.state_dict())
    return cpu, gpu, made


def step(net, ids, **given):
    """Logits, loss and gradients."""
    net.zero_grad()
    out = net(ids, labels=ids, **given)
    out.loss.backward()
    gradients = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    return out.logits.detach(), out.loss.detach(), gradients


def close(found, expected, bound):
    """Within a share of the largest number."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert (found - expected).abs().max() <= bound * expected.abs().max() + 1e-7


def same(cpu, gpu, bound, gradients=None, **given):
    torch.manual_seed(0)
    vocab = cpu.embed.embedding.weight.shape[0]
    ids = torch.randint(0, vocab, (1, 18) if "seq" in given else (2, 9))
    (a, loss_a, grads_a), (b, loss_b, grads_b) = (step(net, ids, **given) for net in (cpu, gpu))
    close(b, a, bound)
    close(loss_b, loss_a, bound)
    assert grads_a.keys() == grads_b.keys()
    for name, grad in grads_a.items():
        assert (grads_b[name] - grad).norm() <= (gradients or 5 * bound) * grad.norm() + 1e-7, name


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name):
    cpu, gpu, made = both(hybridc.import_hf(GOLDENS / name))
    same(cpu, gpu, *(ROUNDED if "gpu.Bit" in made.source["model.py"] else (3e-6,)))
    assert all("rg lru" in d.label for d in made.warnings if d.code == "HYB603")


@pytest.mark.parametrize(
    "rule",
    [
        "default fp32",
        "fp8(block128) on **",
        "fp8(row) on **",
        "fp8(tensor, bwd=e4m3) on **",
        "fp8(delayed) on layers[0].**",
        "fp8(mx) on **",
        "fp8(block128, scale=pow2) on **",
        "bitnet on **",
        "fp8(block128) on **\n bitnet on layers[1].**",
    ],
)
def test_formats(rule):
    cpu, gpu, made = both(SPEC.replace("RULES", rule))
    text = made.source["model.py"]
    assert ("gpu.FP8Linear(" in text) == ("fp8" in rule) and ("gpu.BitLinear(" in text) == ("bitnet" in rule)
    same(cpu, gpu, *((3e-6,) if "fp32" in rule else ROUNDED))


def test_documents():
    cpu, gpu, _ = both(SPEC.replace("RULES", "default fp32"))
    same(cpu, gpu, 3e-6, seq=PackedSeq([0, 5, 6, 18]))


def test_a_cache():
    cpu, gpu, _ = both(SPEC.replace("RULES", "default fp32"))
    ids = torch.arange(24).view(2, 12) % 50
    found = []
    for net in (cpu, gpu):
        cache = net.new_cache(2, 16)
        with torch.no_grad():
            parts = [net(ids[:, a:b], cache=cache).logits for a, b in ((0, 8), (8, 9), (9, 12))]
        found.append(torch.cat(parts, 1))
    close(found[1], found[0], 3e-6)


def test_a_fused_norm_leaves_a_quantized_value_behind():
    text = hybridc.compile(SPEC.replace("RULES", "fp8(block128) on layers.**"), target="cuda:sm90").source["model.py"]
    assert "h = kernels.rmsnorm_e4m3_block(x, self.norm.weight, eps=1e-5)" in text
    assert "return self.down(kernels.silu_glu_e4m3_block(self.gate_up(x)))" in text
    assert "x, h_3 = kernels.add_rmsnorm_e4m3_block(" in text


def test_a_package_on_disk(tmp_path):
    made = hybridc.compile(SPEC.replace("RULES", "default fp32"), target="cuda:sm90")
    folder = made.save(tmp_path / "made")
    assert sorted(p.name for p in folder.iterdir()) == [
        "__init__.py", "kernels.py", "manifest.json", "model.py", "spec.hyb"
    ]  # fmt: skip
    loaded = load_source("made", (folder / "model.py").read_text(), (folder / "kernels.py").read_text())
    assert loaded.Model is load_source("made", made.source["model.py"], made.source["kernels.py"]).Model


def test_nothing_computes_it():
    with pytest.raises(hybridc.DiagnosticError) as caught:
        hybridc.compile(SPEC.replace("RULES", "fp8(block128) on **.mlp"), target="cuda:sm80")
    found = [d for d in caught.value.diagnostics if d.code == "HYB606"]
    assert found and "sm80 has no tensor cores for FP8" in found[0].label
    assert found[0].help == "compile for cpu or cuda:sm90 or cuda:sm100, or keep `mlp` out of the rule"


def test_plain_torch_is_not_silent():
    block = "block R { x += rg_lru(blocks=2) }"
    spec = f"{block}\nmodel m {{\n embed = embedding(9, 16)\n layers = R\n head = lm_head(9)\n}}"
    found = [d for d in hybridc.compile(spec, target="cuda:sm90").warnings if d.code == "HYB603"]
    assert len(found) == 1 and "`rg_lru` on cuda:sm90: its rg lru runs as plain torch" in found[0].label


def test_logits_are_made_when_they_are_asked_for():
    _, gpu, made = both(SPEC.replace("RULES", "default fp32"))
    assert "return ctx.output_of(self.head, x, labels)" in made.source["model.py"]
    calls = []
    gpu.head.register_forward_hook(lambda *_: calls.append(1))
    ids = torch.arange(8)[None]
    out = gpu(ids, labels=ids)
    assert out.loss.isfinite() and not calls
    assert out.logits.shape == (1, 8, 50) and len(calls) == 1


def test_tensors_on_the_cpu_without_an_interpreter():
    """What Triton would say, of drivers, helps nobody."""
    script = (
        "import sys, torch, hybridc\n"
        "net = hybridc.compile(sys.argv[1], target='cuda:sm90').load()\n"
        "try:\n    net(torch.zeros(1, 4, dtype=torch.int64))\n"
        "except hybridc.runtime.errors.UsageError as error:\n    print(error)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    words = [sys.executable, "-W", "ignore", "-c", script, SPEC.replace("RULES", "default fp32")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert "compiled for a GPU, and its input is on the CPU" in done.stdout, done.stderr
