"""FP8 primary weights: the same training to the last bit, what is saved, and weights that layers share."""

import copy

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

import hybridc
from hybridc.runtime.errors import UsageError
from hybridc.runtime.ops import FP8Linear
from hybridc.runtime.quant.primary import PrimaryWeights, store_in_fp8
from tests.runtime.quant import model

RECIPES = ["tensor", "delayed", "row", "block128", "mx"]

SPEC = """model m {{
  param dim = 32
  let norm = rmsnorm()
  block H {{
    x += norm >> (attention(heads=2) | mamba2(heads=4, state=8))
    x += norm >> swiglu(hidden=48)
  }}
  embed = embedding(64)
  layers = H * 2
  head = norm >> lm_head(64)
}}
precision {{ fp8({recipe}) on layers.** except norm }}
"""


def net_of(recipe):
    return hybridc.compile(SPEC.format(recipe=recipe)).load(seed=0)


def train(net, masters, optimizer, steps, clip=None):
    """Losses of steps of two micro-batches each."""
    g, losses = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        for _ in range(2):
            ids = torch.randint(64, (2, 9), generator=g)
            loss = net(ids, labels=ids).loss
            loss.backward()
            losses.append(loss.item())
        if masters is None:
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
        else:
            if clip:
                masters.gather()
                nn.utils.clip_grad_norm_(masters.parameters(), clip)
            masters.step(optimizer)
        optimizer.zero_grad()
    return losses


@pytest.mark.parametrize("recipe", [*RECIPES, "block128, scale=pow2"])
def test_losses_are_those_of_fp32_weights_to_the_last_bit(recipe):
    plain, net = net_of(recipe), net_of(recipe)
    masters = PrimaryWeights(net)
    wanted = train(plain, None, torch.optim.AdamW(plain.parameters(), lr=3e-3), 5, clip=0.5)
    found = train(net, masters, torch.optim.AdamW(masters.parameters(), lr=3e-3), 5, clip=0.5)
    assert found == wanted and len(set(wanted)) == 10
    ours, theirs = dict(masters.named_parameters()), dict(plain.named_parameters())
    assert list(ours) == list(theirs)
    assert all(torch.equal(p, theirs[n]) for n, p in ours.items())
    # in the net, weights of products are FP8 alone
    linears = [m for m in net.modules() if isinstance(m, FP8Linear)]
    assert linears and all(m.weight.dtype == torch.float8_e4m3fn for m in linears)
    assert len(masters.primaries) == len(linears)
    assert all(m.product.quantized == 6 for m in linears)  # as they were made, and in 5 steps


@pytest.mark.parametrize("recipe", model.RECIPES)
def test_what_is_stored(recipe):
    """The model in float64 was written from the recipes' definitions."""
    linear = FP8Linear(70, 140, recipe)
    weight = linear.weight.detach().clone()
    (primary,) = store_in_fp8(linear)
    blocks, power = model.RECIPES[recipe][1:3]
    assert torch.equal(primary.dequantize().double(), model.rounded(weight, "e4m3", *blocks, power).float().double())
    size = sum(t.numel() * t.element_size() for n, t in linear.state_dict().items() if "scale" not in n)
    assert size == weight.numel() * (2 if recipe in ("row", "mx") else 1)


@pytest.mark.parametrize("recipe", ["tensor", "row", "block128"])
def test_a_run_goes_on_from_a_file(recipe, tmp_path):
    net = net_of(recipe)
    masters = PrimaryWeights(net)
    optimizer = torch.optim.SGD(masters.parameters(), lr=0.1)
    train(net, masters, optimizer, 2)
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    save_file(masters.state_dict(), tmp_path / "masters.safetensors")
    wanted = train(net, masters, optimizer, 2)

    other = hybridc.compile(SPEC.format(recipe=recipe)).load(seed=1)
    fresh = PrimaryWeights(other)
    other.load_state_dict(load_file(tmp_path / "net.safetensors"))
    with pytest.raises(UsageError, match="was written in FP8 after its master was"):
        fresh.gather()
    fresh.load_state_dict(load_file(tmp_path / "masters.safetensors"))
    assert train(other, fresh, torch.optim.SGD(fresh.parameters(), lr=0.1), 2) == wanted

    # without masters, these start as what the FP8 weights stand for
    third = hybridc.compile(SPEC.format(recipe=recipe)).load(seed=1)
    bare = PrimaryWeights(third)
    third.load_state_dict(load_file(tmp_path / "net.safetensors"))
    bare.read()
    assert train(third, bare, torch.optim.SGD(bare.parameters(), lr=0.1), 1)[0] == wanted[0]
    for name, master in PrimaryWeights(third).masters.items():
        assert torch.equal(master, bare.primaries[name].dequantize())


@pytest.mark.parametrize("recipe", RECIPES)
def test_plain_and_fp8_nets_load_each_other(recipe):
    torch.manual_seed(0)
    plain = FP8Linear(70, 140, recipe, bias=True)
    stored = copy.deepcopy(plain)
    (primary,) = store_in_fp8(stored)
    wide = FP8Linear(70, 140, recipe, bias=True)
    wide.load_state_dict(stored.state_dict())
    assert wide.weight.dtype == torch.float32 and torch.equal(wide.weight, primary.dequantize())
    other = FP8Linear(70, 140, recipe, bias=True)
    store_in_fp8(other)
    other.load_state_dict(plain.state_dict())
    for name, t in stored.state_dict().items():
        assert torch.equal(t, other.state_dict()[name]), name


def test_what_cannot_be_loaded_is_refused():
    block, row = FP8Linear(70, 140, "block128"), FP8Linear(70, 140, "row")
    store_in_fp8(block)
    with pytest.raises(RuntimeError, match="in FP8 with other scales than those of the recipe row"):
        row.load_state_dict(block.state_dict())
    with pytest.raises(RuntimeError, match="weight_scale"):
        nn.Linear(70, 140, bias=False).load_state_dict(block.state_dict())
    store_in_fp8(row)
    with pytest.raises(RuntimeError, match="weight_scale"):
        row.load_state_dict(block.state_dict())
    masters = PrimaryWeights(row)
    for state in ({}, {"weight": torch.zeros(70, 140)}, masters.state_dict() | {"more": torch.zeros(1)}):
        with pytest.raises(UsageError, match="masters of another net"):
            masters.load_state_dict(state)


def test_a_cast_is_refused_and_a_copy_learns():
    linear = FP8Linear(16, 16, "block128")
    store_in_fp8(linear)
    other = copy.deepcopy(linear)
    other(torch.randn(3, 16)).sum().backward()
    assert other.weight.grad.dtype == torch.float32
    with pytest.raises(UsageError, match=r"was cast to torch\.bfloat16"):
        linear.bfloat16()(torch.ones(1, 16).bfloat16())


class Shared(nn.Module):
    """Two linear maps with one weight, one that is called twice, and one whose weight is an embedding's."""

    def __init__(self, recipe, other=None):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.one, self.two = FP8Linear(16, 16, recipe), FP8Linear(16, 16, other or recipe)
        self.two.weight = self.one.weight
        self.again = FP8Linear(16, 16, recipe)
        self.same = self.again
        self.head = FP8Linear(16, 20, recipe)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.two(self.one(self.embed(ids)).relu())
        return nn.functional.cross_entropy(self.head(self.same(self.again(x).relu())), ids)


@pytest.mark.parametrize("recipe", ["tensor", "row", "block128"])
def test_shared_weights(recipe, tmp_path):
    torch.manual_seed(0)
    plain = Shared(recipe)
    net = copy.deepcopy(plain)
    masters = PrimaryWeights(net)
    assert list(masters.masters) == ["one.weight", "again.weight"]
    assert net.one.weight is net.two.weight and net.head.weight is net.embed.weight
    assert net.head.weight.dtype == torch.float32
    ids = torch.arange(20)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (plain, masters)]
    for _ in range(5):
        losses = [m(ids) for m in (plain, net)]
        assert losses[0].item() == losses[1].item()
        for loss in losses:
            loss.backward()
        optimizers[0].step()
        masters.step(optimizers[1])
        for optimizer in optimizers:
            optimizer.zero_grad()
    assert torch.equal(masters.masters["one.weight"], plain.one.weight)
    save_model(net, str(tmp_path / "net.safetensors"))
    other = Shared(recipe)
    store_in_fp8(other)
    load_model(other, str(tmp_path / "net.safetensors"))
    assert other(ids).item() == net(ids).item()


def test_weights_that_are_shared_otherwise_stay():
    """By linear maps of different recipes, and where each keeps a history."""
    assert list(PrimaryWeights(Shared("row", "block128")).masters) == ["again.weight"]
    assert list(PrimaryWeights(Shared("delayed")).masters) == ["again.weight"]


def test_an_optimizer_of_fp8_weights_is_refused():
    """It would change nothing that is read, and its gradients would be lost."""
    net = net_of("block128")
    masters = PrimaryWeights(net)
    with pytest.raises(UsageError, match="in place of their masters"):
        masters.step(torch.optim.SGD(net.parameters(), lr=0.1))
