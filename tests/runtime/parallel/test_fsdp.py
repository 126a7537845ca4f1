"""Fully sharded models: units, dtypes, ties and shared blocks, optimizers, caches."""

import pytest
import torch
from torch.distributed.tensor import DTensor

import hybridc
from hybridc.runtime.generate import generate
from hybridc.runtime.ops.losses import token_cross_entropy
from tests.equivalence.ranks import on_ranks
from tests.runtime.parallel.models import (
    COPIES,
    DENSE,
    DP,
    DP_TP,
    HYBRID,
    device_mesh,
    off,
    put,
    ranks,
    rows_of,
    serial,
    tokens,
)

SHARED = """
model sharing {
  param dim = 32
  shared block S {
    x += rmsnorm() >> attention(heads=4, kv_heads=2, rope=rope())
    x += own(rmsnorm()) >> swiglu(40)
  }
  block A { x += rmsnorm() >> swiglu(40) }
  embed = embedding(45, dim)
  layers = S A S A S
  head = rmsnorm() >> lm_head(45, tied=true)
}
"""
BF16 = HYBRID + "precision { default bf16 }\n"


def trained(net, mine=lambda batch, net: batch, make=torch.optim.AdamW, groups=False, steps=3):
    """Losses of steps of an optimizer, the parameters afterwards, and whether it took each group's at once."""
    optimizer = make(net.parameter_groups() if groups else net.parameters(), lr=1e-3)
    losses = []
    for seed in range(steps):
        losses.append(float(net.step([mine(tokens(seed=seed), net)]).loss))
        net.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
    return losses, net.whole_state_dict(), [group["foreach"] for group in optimizer.param_groups]


def sgd(parameters, lr):
    """Plain descent: Adam's first steps are signs, which rounding turns."""
    return torch.optim.SGD(parameters, lr=10 * lr, momentum=0.9)


def ends(spec, mesh, make, groups):
    """On a rank: what training ends with, and what parameters are."""
    net = put(spec, mesh)
    kinds = {n: (isinstance(p, DTensor), p.dtype) for n, p in net.named_parameters()}
    return *trained(net, rows_of, make, groups), kinds


@pytest.mark.parametrize("mesh", [*DP, *DP_TP], ids=str)
def test_training_with_shared_blocks_and_ties(mesh):
    want = trained(serial(SHARED), make=sgd)
    for losses, state, *_ in on_ranks(ranks(mesh), ends, SHARED, mesh, sgd, False):
        assert losses == pytest.approx(want[0], rel=1e-6)
        assert off(state, want[1]) == {}


def test_copied_pieces_are_sharded_along_another_dim():
    """And what has but one dim is not sharded."""
    for *_, kinds in on_ranks(4, ends, COPIES, DP_TP[1], sgd, False):
        whole = {n for n, (sharded, _) in kinds.items() if not sharded}
        assert whole == {"layers.0.attention.qkv.bias", "layers.1.attention.qkv.bias"}


@pytest.mark.parametrize("foreach, groups", [(None, False), (True, True)])
def test_mixed_precision_has_fp32_masters(foreach, groups):
    """Blocks compute in bf16, parameters that stay fp32 in fp32 and whole; torch's optimizers step all of them."""

    def adam(parameters, lr):
        return torch.optim.AdamW(parameters, lr=lr, foreach=foreach)

    want = trained(serial(BF16))
    for losses, state, together, kinds in on_ranks(2, ends, BF16, DP[1], adam, groups):
        assert together == ([True, True] if groups else [False])
        assert losses == pytest.approx(want[0], rel=2e-3)
        assert {dtype for _, dtype in kinds.values()} == {torch.float32} == {t.dtype for t in state.values()}
        whole = {n.rpartition(".")[0].rpartition(".")[2] + "." + n.rpartition(".")[2] for n in kinds if not kinds[n][0]}
        assert whole == {"mamba2.A_log", "mamba2.D", "mamba2.dt_bias", "router.weight"}
        for name, t in want[1].items():
            assert torch.allclose(state[name].to(t.dtype), t, atol=2e-2), name


def computed(spec, mesh):
    """On a rank: dtypes of a layer's parameters, its input and output while it runs, logits, and what is generated."""
    net = put(spec, mesh)
    seen = {}

    def hook(module, args, out):
        seen.update({n: p.dtype for n, p in module.named_parameters()} | {"in": args[0].dtype, "out": out.dtype})

    net.layers[0].mamba2.register_forward_hook(hook)
    with torch.no_grad():
        logits = net(tokens()["input_ids"]).logits
    made = generate(net, tokens()["input_ids"], max_new_tokens=5)
    return seen, logits, made


def test_blocks_compute_in_the_dtype_of_the_spec():
    net = serial(BF16)
    with torch.no_grad():
        want = net(tokens()["input_ids"]).logits
    made = generate(net, tokens()["input_ids"], max_new_tokens=5)
    for seen, logits, generated in on_ranks(2, computed, BF16, DP[1]):
        assert {n for n, dtype in seen.items() if dtype != torch.bfloat16} == {"A_log", "D", "dt_bias"}
        assert torch.equal(logits, want)
        assert generated == made


def fused(mesh):
    """On a rank: a step and a loss without gradients, of a model whose head makes the loss without logits."""
    made = hybridc.compile(SHARED, mesh=mesh)
    text = made.source["model.py"]
    made.source["model.py"] = text.replace("output(self.head(x), labels)", "output_of(self.head, x, labels)")
    assert made.source["model.py"] != text
    net = made.load(init=False)
    type(net.head).loss = lambda self, x, targets: token_cross_entropy(self.forward(x).flatten(0, 1), targets.flatten())
    net = made.shard(net, device_mesh(mesh))
    net.init_weights(0)
    found = []
    for _ in range(2):
        with torch.no_grad():
            found.append(float(net(**rows_of(tokens(), net)).loss))
        out = net(**rows_of(tokens(), net))
        logits = out.logits
        out.loss.backward()
        found.append((float(out.loss.detach()), logits.detach(), net.whole_gradients()))
        net.zero_grad()
    return found


def test_a_head_that_makes_the_loss():
    net = serial(SHARED)
    out = net(**tokens())
    out.loss.backward()
    loss = float(out.loss.detach())
    for rank, found in enumerate(on_ranks(2, fused, DP[1])):
        for alone, (trained_loss, logits, grads) in (found[:2], found[2:]):
            assert alone == trained_loss == pytest.approx(loss, rel=1e-6)
            assert torch.allclose(logits, out.logits[2 * rank : 2 * rank + 2], atol=1e-6)
            assert off(grads, {n: p.grad for n, p in net.named_parameters(remove_duplicate=False)}) == {}


def test_an_emitted_package_shows_how_it_is_sharded():
    lines = [
        "    agree(SPEC, model, mesh)",
        "    mesh = Mesh.of(mesh, model.MESH)",
        "    place(model, mesh)",
        "    fully_shard = FullyShard(model, mesh, torch.bfloat16)",
        "    for blocks in units(model):",
        "        fully_shard(*blocks)",
        "    fully_shard(model)",
    ]
    assert "\n".join(lines) in hybridc.compile(BF16, mesh={"dp": "fsdp(2)"}).source["parallel.py"]
    assert "self.to(" not in hybridc.compile(BF16, mesh={"dp": "fsdp(2)"}).source["model.py"]
    assert "self.to(torch.bfloat16)" in hybridc.compile(BF16, mesh={"dp": "replicate(2)"}).source["model.py"]
    dense = hybridc.compile(DENSE, mesh={"dp": "replicate(2)"}).source["parallel.py"]
    assert "fully_shard" not in dense and "import torch" not in dense
