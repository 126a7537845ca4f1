"""A trained net packed for inference: what it computes stays, what it holds shrinks, transformers reads it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.runtime.kernels import bit_linear as kernels

GOLDENS = Path(__file__).parent.parent / "frontend" / "hf" / "goldens"
SPEC = """model m {
  param dim = 16
  let norm = rmsnorm()
  block H {
    x += norm >> attn: attention(heads=4, kv_heads=2, bias=true)
    x += norm >> moe(experts=2, hidden=8, top_k=1, shared=8)
  }
  block P { x += norm >> mamba2(heads=2, state=4) }
  embed = embedding(32, dim)
  layers = (H P) * 2
  head = norm >> lm_head(32, tied=true)
}
precision { RULES }
"""
IDS = torch.randint(0, 32, (2, 11), generator=torch.Generator().manual_seed(0))


def trained(rules):
    """A net that three steps have moved away from where it started."""
    net = hybridc.compile(SPEC.replace("RULES", rules)).load()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        net(IDS, labels=IDS).loss.backward()
        optimizer.step()
    return net.eval()


@pytest.mark.parametrize("rules", ["bitnet on layers.**", "bitnet on layers.**\n fp8(row) on attn"])
def test_a_packed_net_computes_the_same(rules):
    net = trained(rules)
    packed = hybridc.pack_bitnet(net)
    assert not packed.training and net.training is packed.training
    with torch.no_grad():
        torch.testing.assert_close(packed(IDS).logits, net(IDS).logits, rtol=1e-4, atol=1e-5)
    mixer = packed.layers[1].mamba2
    assert mixer.in_proj.weight.dtype == torch.uint8 and not mixer.in_proj.weight.requires_grad
    assert (packed.layers[0].attn.qkv.weight.dtype == torch.uint8) == ("fp8" not in rules)
    # the rest is that of the net itself
    assert packed.head.lm_head.weight is packed.embed.embedding.weight is net.embed.embedding.weight
    assert packed.layers[0].moe.experts.down is net.layers[0].moe.experts.down
    again = type(packed)()
    again.load_state_dict(packed.state_dict())
    with torch.no_grad():
        assert torch.equal(again.eval()(IDS).logits, packed(IDS).logits)


def test_a_net_for_a_gpu_stays_one():
    """Its kernels, and those of packed products, interpreted on CPU tensors."""
    text = SPEC.replace("x += norm >> moe(experts=2, hidden=8, top_k=1, shared=8)", "x += norm >> swiglu(24)")
    compiled = hybridc.compile(text.replace("RULES", "bitnet on layers.**"), target="cuda:sm90")
    net = compiled.load().eval()
    packed = hybridc.pack_bitnet(net)
    assert type(packed.layers[0].attn.qkv) is kernels.PackedBitLinear
    with torch.no_grad():
        torch.testing.assert_close(packed(IDS).logits, net(IDS).logits, rtol=1e-4, atol=1e-5)


def test_nets_without_anything_to_pack():
    rank = hybridc.compile(SPEC.replace("RULES", "bitnet on layers.**"), mesh={"tp": 2}).load(init=False)
    for net, code in (
        (trained("fp8(row) on layers.**"), "HYB309"),
        (torch.nn.Linear(2, 2), "HYB513"),
        (rank, "HYB311"),
    ):
        with pytest.raises(DiagnosticError) as caught:
            hybridc.pack_bitnet(net)
        assert [d.code for d in caught.value.diagnostics] == [code]


def test_transformers_reads_a_packed_net(tmp_path):
    """From master weights to the packed file: transformers computes from both what the golden says."""
    folder = GOLDENS / "bitnet_ternary"
    golden = load_file(folder / "golden.safetensors")
    packed = hybridc.pack_bitnet(hybridc.from_hf(folder).eval())
    hybridc.to_hf(packed, tmp_path / "packed")
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "packed", attn_implementation="eager").eval()
        for net in (loaded, packed, hybridc.from_hf(tmp_path / "packed")):
            wrong = (net(golden["input_ids"]).logits - golden["logits"]).abs().max()
            # eight bits of activation round differently where a sum differs in its last bit
            assert wrong <= 3e-2 * golden["logits"].std().clamp(min=1.0)
    assert (
        sum(p.stat().st_size for p in (tmp_path / "packed").glob("*.safetensors"))
        < 0.5 * (folder / "model.safetensors").stat().st_size
    )
