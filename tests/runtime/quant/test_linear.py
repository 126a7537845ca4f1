"""Linear maps and experts in FP8: all three products as defined, weights quantized once, what is remembered."""

import copy

import pytest
import torch

import hybridc
from hybridc.runtime import gpu
from hybridc.runtime.ops import Experts, FP8Linear, FP8Product
from tests.runtime.quant import model

CASES = [(name, {}) for name in model.RECIPES] + [
    ("block128", {"bwd": "e5m2"}),
    ("block128", {"scale": "pow2"}),
    ("tensor", {"bwd": "e4m3"}),
    ("row", {"fwd": "e5m2"}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize(("tokens", "ins", "out"), [(3, 16, 8), (130, 70, 140)])
def test_all_three_products(name, options, tokens, ins, out):
    torch.manual_seed(0)
    linear = FP8Linear(ins, out, name, bias=True, **options)
    x, dy = torch.randn(tokens, ins), torch.randn(tokens, out)
    x.requires_grad_()
    y = linear(x)
    y.backward(dy)
    power = {"scale": True}.get(next(iter(options), ""))
    given = {k: v for k, v in options.items() if k != "scale"}
    wanted = model.products(x.detach(), linear.weight.detach(), dy, name, power=power, **given)
    got = (y - linear.bias).detach(), x.grad, linear.weight.grad
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(linear.bias.grad, dy.sum(0))


def test_a_weight_is_quantized_once_a_step():
    torch.manual_seed(0)
    linear = FP8Linear(32, 32, "block128")
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    for step in range(3):
        for _ in range(4):
            linear(torch.randn(2, 32)).sum().backward()
        assert linear.product.quantized == step + 1
        optimizer.step()
        optimizer.zero_grad()
    before = linear(torch.ones(1, 32))
    with torch.no_grad():
        linear.weight.mul_(2)
    torch.testing.assert_close(linear(torch.ones(1, 32)), 2 * before)


def test_a_copy_and_a_cast_forget_what_was_quantized():
    linear = FP8Linear(16, 16, "row")
    x = torch.randn(3, 16)
    linear(x)
    other = copy.deepcopy(linear)
    with torch.no_grad():
        other.weight.zero_()
    assert not other(x).any() and linear(x).any()
    assert linear.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16


def test_delayed_scales_come_from_former_steps():
    linear = FP8Linear(4, 4, "delayed")
    with torch.no_grad():
        linear.weight.copy_(torch.eye(4))
    small, large = torch.full((1, 4), 1.0), torch.full((1, 4), 1000.0)
    torch.testing.assert_close(linear(small), small)  # the first step has its own
    torch.testing.assert_close(linear(large), torch.ones_like(large))  # scaled for 1.0: the rest saturates
    torch.testing.assert_close(linear(large), large)
    assert sorted(linear.product.amax[0].tolist())[-3:] == [1.0, 1000.0, 1000.0]
    for _ in range(16):
        linear(small)
    assert linear.product.amax[0].max() == 1.0
    fresh = FP8Linear(4, 4, "delayed")
    fresh.load_state_dict(linear.state_dict())
    assert torch.equal(fresh.product.amax, linear.product.amax)
    linear.eval()(large)
    assert linear.product.amax[0].max() == 1.0  # evaluation leaves no trace


@pytest.mark.parametrize("form", [FP8Linear, gpu.FP8Linear])
def test_a_gradient_that_comes_twice_is_remembered_once(form):
    """Schedules of pipelines take the gradients of inputs and of weights apart, in two backwards."""
    torch.manual_seed(0)
    once, twice = form(16, 16, "delayed"), form(16, 16, "delayed")
    twice.load_state_dict(once.state_dict())
    for size in (1.0, 3.0, 0.5):
        x, dy = torch.randn(4, 16), size * torch.randn(4, 16)
        once(x).backward(dy)
        y = twice(x)
        y.backward(dy, retain_graph=True)
        twice.weight.grad = None
        y.backward(dy)
        assert torch.equal(once.product.amax, twice.product.amax)
        assert torch.equal(once.weight.grad, twice.weight.grad)
        once.weight.grad = twice.weight.grad = None


def test_autocast_gives_its_own_dtype():
    linear = FP8Linear(16, 8, "block128")
    x = torch.randn(3, 16)
    plain = linear(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = linear(x)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, plain.bfloat16())


@pytest.mark.parametrize("name", ["tensor", "row", "block128", "mx", "delayed"])
def test_experts(name):
    """Each expert's products are those of a linear map with its weights on its tokens."""
    torch.manual_seed(0)
    experts = Experts(3, 16, 8, products=(FP8Product(name), FP8Product(name)))
    with torch.no_grad():
        for p in experts.parameters():
            p.normal_()
    x = torch.randn(10, 16, requires_grad=True)
    ids = torch.randint(3, (10, 1))
    y = experts(x, torch.ones(10, 1), ids)
    y.square().sum().backward()
    for e in range(3):
        mine = (ids == e)[:, 0]
        up, down = FP8Linear(16, 16, name), FP8Linear(8, 16, name)
        with torch.no_grad():
            up.weight.copy_(experts.gate_up[e])
            down.weight.copy_(experts.down[e])
        if name == "delayed":  # one history for all experts
            continue
        part = x.detach()[mine].requires_grad_()
        gate, value = up(part).chunk(2, dim=-1)
        alone = down(torch.nn.functional.silu(gate) * value)
        alone.square().sum().backward()
        torch.testing.assert_close(alone, y[mine], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(part.grad, x.grad[mine], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(up.weight.grad, experts.gate_up.grad[e], rtol=1e-4, atol=1e-4)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in experts.parameters())


@pytest.mark.parametrize("recipe", ["tensor", "delayed", "row", "block128", "mx"])
def test_a_hybrid_learns_in_fp8(recipe):
    """Ten steps on one batch: the loss falls as in fp32, to within the formats' resolution."""

    def losses(precision):
        net = hybridc.compile(SPEC + precision).load(seed=0)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        ids = torch.randint(64, (2, 24), generator=torch.Generator().manual_seed(0))
        found = []
        for _ in range(10):
            loss = net(ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    plain, quantized = losses(""), losses(f"precision {{ fp8({recipe}) on layers.** except norm }}")
    assert quantized[-1] < quantized[0] - 0.5
    assert abs(quantized[-1] / plain[-1] - 1) < 0.05


SPEC = """model m {
  param dim = 32
  let norm = rmsnorm()
  block H {
    x += norm >> (attention(heads=2) | mamba2(heads=4, state=8))
    x += norm >> moe(experts=3, hidden=16, top_k=2, shared=16)
  }
  embed = embedding(64)
  layers = H * 2
  head = norm >> lm_head(64)
}
"""


def test_what_is_remembered_starts_at_nothing():
    """Also in a net that was made without memory first, as transformers and `from_hf` make it."""
    compiled = hybridc.compile(SPEC + "precision { fp8(delayed) on layers.** }")
    net = compiled.skeleton().to_empty(device="cpu")
    for buffer in net.buffers():
        buffer.fill_(float("nan"))
    net.init_weights(0)
    histories = [b for n, b in net.named_buffers() if n.endswith("amax")]
    assert len(histories) == 16 and not any(h.any() for h in histories)
    assert not [n for n, b in hybridc.compile(SPEC + "precision { fp8(row) on layers.** }").load().named_buffers()]
