"""Other ways of running on a mesh than a step: public checkpoints in and out, and caches."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh

import hybridc
from tests.equivalence.cases import SUBLAYERS, Case, size
from tests.equivalence.ranks import on_ranks

GOLDENS = Path(__file__).parents[1] / "frontend" / "hf" / "goldens"


def mesh_of(axes):
    return init_device_mesh("cpu", tuple(map(size, axes.values())), mesh_dim_names=tuple(axes))


def loaded(name, axes):
    net = hybridc.from_hf(GOLDENS / name, mesh=axes, device_mesh=mesh_of(axes))
    ids = load_file(GOLDENS / name / "golden.safetensors")["input_ids"]
    logits = None if "pp" in axes else net(ids).logits.detach()
    return logits, dict(hybridc.to_hf_state_dict(net))


@pytest.mark.parametrize(
    "name, axes",
    [
        ("falcon_h1_biases", {"dp": "fsdp(2)", "tp": "2"}),
        ("jamba_aux", {"tp": "2"}),
        ("qwen3_next_dense", {"pp": "2", "tp": "2"}),
    ],
)
def test_a_public_checkpoint(name, axes):
    """Weights come in part by part, give the public library's logits, and go out as they came, bit for bit."""
    ranks = 1
    for form in axes.values():
        ranks *= size(form)
    golden = load_file(GOLDENS / name / "golden.safetensors")
    tensors = load_file(GOLDENS / name / "model.safetensors")
    for logits, state in on_ranks(ranks, loaded, name, axes):
        assert state.keys() <= tensors.keys() and len(state) >= len(tensors) - 1  # a tied head may be there twice
        assert all(torch.equal(value, tensors[n].float()) for n, value in state.items())
        if logits is not None:
            want = golden["logits"]
            assert ((logits - want).abs().max() / want.std().clamp(min=1.0)).item() <= 2e-4


def stepwise(spec, axes):
    """Logits of a prompt, of more of it at a time, and of single tokens, with a cache."""
    net = hybridc.compile(spec, mesh=axes)
    model = net.load(init=False)
    if axes:
        model = net.shard(model, mesh_of(axes))
    model.init_weights(3)
    ids = torch.randint(0, 45, (2, 9), generator=torch.Generator().manual_seed(1))
    cache = model.new_cache(2, 12)
    with torch.no_grad():
        parts = [model(ids[:, a:b], cache=cache).logits for a, b in ((0, 4), (4, 7), (7, 8), (8, 9))]
        return torch.cat(parts, 1), model(ids).logits


@pytest.mark.parametrize("first", range(0, len(SUBLAYERS), 6))
def test_caches(first):
    """Each rank's cache has its own heads and channels."""
    case = Case((SUBLAYERS[first : first + 6],), (0,), "", (), "plain", 1, 1, 1, 0)
    want, whole = stepwise(case.spec, {})
    torch.testing.assert_close(want, whole, rtol=1e-4, atol=1e-5)
    for got, _ in on_ranks(2, stepwise, case.spec, {"tp": "2"}):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
