"""Adapters to Transformer Engine: what surrounds its kernels, which need a GPU and never run here.

The adapters meet a stand-in that computes in torch and takes only calls that the real package would take (signatures of
2.20.2 are stored). `make test-all` reads the real package's Python sources too: its modules are made, its recipes make
their quantizers, and the stored signatures are compared.
"""

import copy
import importlib
import inspect
import json
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hybridc
from hybridc.runtime import ops
from hybridc.runtime.cache import Cache
from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.stored import Stored
from tests.runtime.libraries import te_fake
from tests.runtime.libraries.te_sources import SIGNATURES
from tests.runtime.ops.cases import CPU, gradients, made, packed, plain

NAME = "hybridc.runtime.libraries.te"


@pytest.fixture
def te(monkeypatch):
    """The adapters on the stand-in."""
    for name, module in te_fake.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    te_fake.STATE.calls.clear()
    yield importlib.import_module(NAME)
    for name in [n for n in sys.modules if n.startswith(NAME)]:
        del sys.modules[name]
    del importlib.import_module("hybridc.runtime.libraries").te


def same(ours, theirs, *inputs, tolerance=1e-5, share=0.0):
    """Results, and gradients of inputs and parameters, of two modules with one state dict: each number, or, where one
    may have been rounded the other way before a product, all but a `share` of a tensor's norm."""
    theirs.load_state_dict(ours.state_dict())
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert [n for n, _ in theirs.named_parameters()] == [n for n, _ in ours.named_parameters()]
    found = []
    for module in (ours, theirs):
        given = [i.clone().requires_grad_(i.is_floating_point()) for i in inputs]
        y = module(*given)
        module.zero_grad()
        (y * made(99, *y.shape)).sum().backward()
        grads = [i.grad for i in given if i.requires_grad] + [p.grad for p in module.parameters()]
        found.append([y.detach(), *grads])
    for a, b in zip(*found, strict=True):
        if share:
            assert (b - a).norm() <= share * a.norm()
        else:
            torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance)


def test_without_the_package_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformer_engine", None)
    with pytest.raises(UsageError, match="compiled for transformer-engine"):
        importlib.import_module(NAME)


def test_they_take_what_they_stand_for_takes(te):
    """All that emitted code gives; torch's own norms and linear maps have options besides."""
    given = {"Linear": {"bias"}, "RMSNorm": {"eps"}, "LayerNorm": {"eps", "bias"}}
    for name in te.__all__:
        taken = inspect.signature(getattr(te, name)).parameters
        wanted = given.get(name) or set(inspect.signature(getattr(ops, name)).parameters)
        assert wanted <= set(taken) or taken["options"].kind == inspect.Parameter.VAR_KEYWORD, name


@pytest.mark.parametrize("bias", [False, True])
def test_linear(te, bias):
    same(nn.Linear(6, 10, bias=bias), te.Linear(6, 10, bias=bias), made(1, 2, 3, 6))


@pytest.mark.parametrize("tokens", [1, 3, 16, 33, 130])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [("tensor", {}), ("tensor", {"bwd": "e4m3"}), ("block128", {}), ("block128", {"scale": "pow2"}),
     ("block128", {"bwd": "e5m2"}), ("mx", {})],
    ids=str,
)  # fmt: skip
def test_fp8_linear(te, name, options, bias, tokens):
    x = made(1, 1, tokens, 160)
    same(ops.FP8Linear(160, 64, name, bias=bias, **options), te.FP8Linear(160, 64, name, bias=bias, **options), x)


def test_fp8_linear_of_no_tokens_and_of_a_shared_input(te):
    linear, x = te.FP8Linear(32, 16, "block128"), made(1, 5, 32)
    assert linear(torch.zeros(2, 0, 32)).shape == (2, 0, 16)
    torch.testing.assert_close(linear(te.FP8Input(x, "block128")), linear(x))
    plain, carrier = x.clone().requires_grad_(), torch.zeros(5, 32, requires_grad=True)
    stored = Stored(x.to(torch.float8_e4m3fn), torch.ones(5, 1), carrier, lambda: x)
    y, wanted = linear(stored), linear(plain)
    torch.testing.assert_close(y, wanted)
    for out in (y, wanted):
        out.square().sum().backward()
    torch.testing.assert_close(carrier.grad, plain.grad)


def test_a_weight_is_quantized_once_until_it_changes(te):
    linear, x = te.FP8Linear(32, 32, "tensor"), made(1, 16, 32)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    for step in range(3):
        for _ in range(4):
            linear(x.clone().requires_grad_()).sum().backward()
        assert linear.quantized == step + 1
        optimizer.step()
    with torch.no_grad():
        linear(x), linear(x)
    assert linear.quantized == 4
    linear(x.requires_grad_()).sum().backward()  # what served the forward alone has no form for the backward
    assert linear.quantized == 5
    with torch.no_grad():
        copy.deepcopy(linear)(x), linear(x)
    assert linear.quantized == 5


@pytest.mark.parametrize("name", ["row", "delayed"])
def test_recipes_that_it_has_not(te, name):
    with pytest.raises(UsageError, match="Transformer Engine"):
        te.FP8Linear(32, 32, name)
    with pytest.raises(UsageError, match="E5M2"):
        te.FP8Product("tensor", fwd="e5m2")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms(te, dtype):
    x = (3 * made(1, 2, 5, 24) + 1).to(dtype)
    close = 1e-5 if dtype == torch.float32 else 2e-2
    same(nn.RMSNorm(24, eps=1e-3).to(dtype), te.RMSNorm(24, eps=1e-3).to(dtype), x, tolerance=close)
    ours, theirs = (m.ZeroCenteredRMSNorm(24, eps=1e-3).to(dtype) for m in (ops, te))
    nn.init.normal_(ours.weight)
    same(ours, theirs, x, tolerance=close)
    assert theirs.float()(x).dtype == dtype
    layer = nn.LayerNorm(24, eps=1e-3)
    nn.init.normal_(layer.bias)
    same(layer.to(dtype), te.LayerNorm(24, eps=1e-3, bias=True).to(dtype), x, tolerance=close)
    with pytest.raises(UsageError, match="bias"):
        te.LayerNorm(24, eps=1e-3, bias=False)


HEADS = [(4, 4, 8, 8), (4, 2, 8, 8), (4, 1, 16, 8)]
windows = pytest.mark.parametrize("window", [None, 1, 3, 50])
softmaxes = pytest.mark.parametrize(
    "how", [{}, {"softcap": 2.0}, {"sinks": made(9, 4)}], ids=lambda how: next(iter(how), "plain")
)


def inputs(rows, length, heads=(4, 2, 8, 8)):
    q, kv, dim, value = heads
    return made(1, rows, length, q, dim), made(2, rows, length, kv, dim), made(3, rows, length, kv, value)


@softmaxes
@windows
@pytest.mark.parametrize("context", [plain(2, 1), plain(2, 9), packed([0, 4, 4, 5, 13, 13])], ids=["1", "9", "packed"])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_attention(te, heads, context, window, how):
    given = list(inputs(*context.input_ids.shape, heads))
    sinks = [how["sinks"]] if "sinks" in how else []

    def run(attention):
        def function(q, k, v, *sinks):
            options = {**how, "sinks": sinks[0]} if sinks else how
            return attention(q, k, v, context, None, scale=0.4, window=window, **options)

        return function

    wanted, got = run(ops.attention), run(te.attention)
    torch.testing.assert_close(got(*given, *sinks), wanted(*given, *sinks))
    for a, b in zip(gradients(wanted, given + sinks), gradients(got, given + sinks), strict=True):
        torch.testing.assert_close(b, a)


@softmaxes
@windows
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("past", [[5, 5, 5], [6, 0, 2], [0, 0, 0]], ids=str)
@pytest.mark.parametrize("new", [[1, 1, 1], [3, 3, 3], [2, 0, 4]], ids=str)
def test_attention_behind_a_cache(te, new, past, grad, window, how):
    """Prefill in packed documents, then steps of rows and of documents, one of which has no new tokens."""
    found = []
    for attention in (ops.attention, te.attention):
        state = ops.KVState(3, 12, heads=2, head_dim=8, device=CPU, dtype=torch.float32)
        cache = Cache([{"op": state}], 3, 12)
        outputs = []
        for lengths in (past, new, [1, 1, 1]):
            offsets = [sum(lengths[:n]) for n in range(4)]
            if not offsets[-1]:
                continue
            together = len(set(lengths)) == 1
            given = inputs(3, lengths[0]) if together else inputs(1, offsets[-1])
            ctx = plain(3, lengths[0], cache) if together else packed(offsets, cache)
            with torch.set_grad_enabled(grad):
                outputs.append(attention(*given, ctx, state, scale=0.4, window=window, **how).detach())
            cache.advance(lengths)
        found.append([*outputs, state.k, state.v])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a)


def test_masks_are_the_simplest_that_do(te):
    """A query that is its row's last sees all: cuDNN advises against a causal mask there."""
    te.attention(*inputs(2, 9), plain(2, 9), None, scale=1.0)
    te.attention(*inputs(2, 1), plain(2, 1), None, scale=1.0, window=4)
    te.attention(*inputs(1, 9), packed([0, 4, 9]), None, scale=1.0, window=4)
    te.attention(*inputs(1, 9), packed([0, 4, 9]), None, scale=1.0, window=5)
    assert te_fake.STATE.calls == [
        ("bshd", "causal", (-1, 0)),
        ("bshd", "no_mask", (-1, -1)),
        ("thd", "padding_causal", (3, 0)),
        ("thd", "padding_causal", (-1, 0)),
    ]


def test_dropout_drops(te):
    q, k, v = inputs(1, 400)
    torch.manual_seed(0)
    y = te.attention(q, k, torch.ones_like(v), plain(1, 400), None, scale=0.1, dropout=0.5)
    assert abs(y[:, 200:].mean() - 1) < 0.05 and y[:, 200:].std() > 0.02
    torch.testing.assert_close(
        te.attention(q, k, torch.ones_like(v), plain(1, 400), None, scale=0.1), torch.ones(1, 400, 4, 8)
    )


def test_a_packed_row_without_tokens(te):
    q, k, v = (t[:, :0] for t in inputs(1, 1))
    assert te.attention(q, k, v, packed([0, 3]), None, scale=1.0).shape == (1, 0, 4, 8)


@pytest.mark.parametrize("format", ["", "tensor", "block128", "mx", "first only"])
@pytest.mark.parametrize("options", [{}, {"gated": False, "act": "relu2"}, {"bias": True, "limit": 1.0}], ids=str)
@pytest.mark.parametrize(("tokens", "experts"), [(1, 3), (9, 4), (9, 30)])
def test_experts(te, tokens, experts, options, format):
    recipe = "block128" if format == "first only" else format
    layers = []
    for module in (ops, te):
        products = [ops.FP8Product(recipe) if recipe else None for _ in range(2)]
        if format == "first only":
            products[1] = None
        layers.append(module.Experts(experts, 64, 32, products=tuple(products), **options))
    for n, p in enumerate(layers[0].parameters()):
        nn.init._no_grad_normal_(p, 0.0, 0.3, torch.Generator().manual_seed(n))
    weights, ids = ops.softmax_topk(made(5, tokens, experts), 2, renormalize=True)
    # products of more rows are summed in another order, and a last bit decides how the next one's operand is rounded
    same(*layers, made(4, tokens, 64), weights, ids, share=2e-3 if format else 0.0)


def test_experts_with_a_kernel_inside(te):
    layers = te.Experts(3, 8, 6, act="relu"), te.Experts(3, 8, 6, inside=lambda x: x[:, :6].relu() * x[:, 6:])
    for n, p in enumerate(layers[0].parameters()):
        nn.init._no_grad_normal_(p, 0.0, 0.3, torch.Generator().manual_seed(n))
    weights, ids = ops.softmax_topk(made(5, 9, 3), 2, renormalize=True)
    same(*layers, made(4, 9, 8), weights, ids)
    with pytest.raises(UsageError, match="BitProduct"):
        te.Experts(3, 8, 6, products=(ops.BitProduct(), None))


def test_experts_without_tokens_and_what_they_remember(te):
    layer = te.Experts(3, 32, 32, products=(te.FP8Product("tensor"), te.FP8Product("tensor")))
    for p in layer.parameters():
        nn.init.ones_(p)
    x, weights = made(1, 4, 32), torch.ones(4, 1)
    layer(x.requires_grad_(), weights, torch.zeros(4, 1, dtype=torch.int64)).sum().backward()
    assert layer.gate_up.grad[0].any() and not layer.gate_up.grad[1:].any()
    layer(x, weights, torch.ones(4, 1, dtype=torch.int64)).sum().backward()
    assert [g.quantized for g in layer.grouped] == [3, 3]  # three experts, once
    assert layer(x[:0], weights[:0], torch.zeros(0, 1, dtype=torch.int64)).shape == (0, 32)
    assert all(p.device.type == "meta" for g in layer.grouped for p in g.parameters())


MIXED = """model mixed {
  let norm = rmsnorm()
  block H {
    x += norm >> attention(heads=4, kv_heads=2, window=9)
    x += norm >> moe(experts=4, hidden=64, top_k=2)
  }
  embed = embedding(256, 64)
  layers = H * 2
  head = norm >> lm_head(256)
}
precision {
  default fp16
  fp8(block128, scale=pow2) on layers[1:2].**
}
"""


@pytest.mark.filterwarnings("ignore:.*encountered in")  # the interpreter, in rows behind the last one
def test_an_emitted_model(te):
    """Compiled for a GPU with te, against the same spec compiled for the CPU: one state dict, results and gradients."""
    plain = hybridc.compile(MIXED).load(seed=1)
    net = hybridc.compile(MIXED, target="cuda:sm90", libraries=["te"]).load(seed=1)
    assert isinstance(net.layers[0].attention.qkv, te.Linear) and isinstance(net.layers[1].moe.experts, te.Experts)
    assert isinstance(net.layers[1].attention.out, te.FP8Linear)
    net.load_state_dict(plain.state_dict())
    ids = torch.randint(0, 256, (2, 24), generator=torch.Generator().manual_seed(0))
    for given in ({}, {"attention_mask": torch.ones(2, 24, dtype=torch.int64).tril(9)}):
        found = []
        for model in (plain, net):
            model.zero_grad()
            out = model(ids, ids, **given)
            (64 * out.loss).backward()  # fp16 has few small numbers
            found.append([out.loss, out.logits, *(p.grad for _, p in sorted(model.named_parameters()))])
        for a, b in zip(*found, strict=True):
            # a last bit of fp16 decides how a number becomes one of FP8
            assert (a - b).float().norm() <= 0.05 * a.float().norm()


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """What the real package's sources say."""
    folder, version = tmp_path_factory.mktemp("te"), json.loads(SIGNATURES.read_text())["version"]
    words = ["-m", "pip", "download", "--quiet", "--no-deps", f"transformer-engine=={version}", "-d", str(folder)]
    subprocess.run([sys.executable, *words], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "sources")
    words = ["-W", "ignore", "-m", "tests.runtime.libraries.te_sources", str(folder / "sources")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.download
def test_stored_signatures_are_the_real_ones(real):
    assert {k: real[k] for k in ("version", "signatures")} == json.loads(SIGNATURES.read_text())


@pytest.mark.download
def test_real_modules_have_our_parameters(real):
    ours = {
        "Linear": nn.Linear(32, 48),
        "Linear without bias": nn.Linear(32, 48, bias=False),
        "FP8Linear": ops.FP8Linear(32, 48, "block128", bias=True),
        "RMSNorm": nn.RMSNorm(32, eps=1e-5),
        "ZeroCenteredRMSNorm": ops.ZeroCenteredRMSNorm(32, eps=1e-5),
        "LayerNorm": nn.LayerNorm(32, eps=1e-5),
        "Experts": ops.Experts(3, 32, 48, bias=True),
    }
    for name, module in ours.items():
        for device in ("meta", "cpu"):
            wanted = {k: [*v.shape, device] for k, v in module.state_dict().items()}
            assert real["parameters"][f"{name} on {device}"] == wanted
    assert real["core"] == ["DotProductAttention", 0.125, 2]


@pytest.mark.download
def test_real_recipes_quantize_as_ours(real):
    for text, found in real["recipes"].items():
        name, options = text.split(" ", 1)
        gradients = "kFloat8E5M2" if "e5m2" in options or text == "tensor {}" else "kFloat8E4M3"
        assert found["numbers"] == ["kFloat8E4M3", "kFloat8E4M3", gradients]
        assert found["powers"] == [name == "mx" or "pow2" in options] * 3
        assert found["blocks"] == ([1, 2, 1] if name == "block128" else [None] * 3)
        assert found["fp32 sums"] == ([None] * 3 if name == "mx" else [True] * 3)


@pytest.mark.download
def test_real_grouped_products_compute_with_our_slices(real):
    inside = F.silu(torch.tensor(5.0)) * 5  # four ones and a bias, in the gate and beside it
    torch.testing.assert_close(torch.tensor(real["slices"]["result"]), torch.full((2, 4), float(5 * inside + 1)))
    assert set(map(tuple, real["slices"]["gradients"].values())) == {(True, False, True)}
