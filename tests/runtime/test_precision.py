"""bf16 weights and torch.autocast: what stays fp32, and how far the numbers may move, for every op with numbers of its
own."""

import pytest
import torch

import hybridc
from hybridc.runtime import ops
from hybridc.runtime.module import Context
from tests.runtime.ops.cases import made, packed, plain

BF16 = torch.bfloat16
DIM = 16

MIXERS = {
    "attention(heads=4, kv_heads=2, rope=rope(), qk_norm=norm, gated=true)": set(),
    "attention(heads=4, sinks=true, softcap=3, window=5)": set(),
    "mla(heads=2, kv_rank=6, nope_dim=4, rope_dim=4, q_rank=5, rope=rope(interleaved=true), norm=norm)": set(),
    "mamba(state=4, norm=norm)": {"A_log", "D", "dt_proj.bias"},
    "mamba2(heads=4, head_dim=4, state=8, groups=2, norm=gated_rmsnorm(groups=2))": {"A_log", "D", "dt_bias"},
    "gated_delta_net(heads=4, key_heads=2, key_dim=4, norm=gate)": {"A_log", "dt_bias"},
    "gated_delta_net(heads=2, key_dim=4, value_dim=3, neg_eigval=true)": {"A_log", "dt_bias"},
    "kda(heads=2, head_dim=4, gate_rank=3, norm=gate)": {"A_log", "dt_bias"},
    "kda(heads=2, head_dim=4, lower_bound=-5)": {"A_log", "dt_bias"},
    "lightning_attention(heads=4, norm=norm)": set(),
    "rg_lru(blocks=2)": {"Lambda"},
    "short_conv()": set(),
    "swiglu(24, down_norm=norm)": set(),
    "moe(experts=4, hidden=8, top_k=2, shared=8, shared_gate=true)": {"router.weight"},
    "moe(experts=6, hidden=8, top_k=2, scores=sigmoid, correction_bias=true, groups=3, top_groups=2, scaling=2)": {
        "router.weight",
        "correction_bias",
    },
    "moe(experts=4, hidden=8, top_k=2, router_bias=true, bias=true, beta=1.7, limit=2, up_offset=1)": {
        "router.weight",
        "router.bias",
    },
}
"""Each op, and its parameters that stay fp32."""

mixers = pytest.mark.parametrize("op", MIXERS)
STATES = {op for op in MIXERS if op.split("(")[0] in (
    "mamba", "mamba2", "gated_delta_net", "kda", "lightning_attention", "rg_lru", "short_conv"
)}  # fmt: skip
"""Those whose cache is a state that is written anew with each token."""


def net_of(op):
    """Two layers of the op in front of a feed-forward, with weights large enough to matter."""
    net = hybridc.compile(f"""model m {{
      let norm = rmsnorm(eps=0.01)
      let gate = gated_rmsnorm(eps=0.01, gate_first=false, act=sigmoid)
      block A {{
        x += rmsnorm() >> op: {op}
        x += rmsnorm(zero_centered=true) >> swiglu(24)
      }}
      embed = embedding(30, {DIM})
      layers = A * 2
      head = layernorm() >> lm_head(30)
    }}""").load(seed=0)
    with torch.no_grad():
        for n, (name, p) in enumerate(net.named_parameters()):
            if p.dim() >= 2 and "A_log" not in name:
                p.copy_(made(n, *p.shape) * p.shape[-1] ** -0.5)
            elif name.endswith("bias") and "dt" not in name:
                p.copy_(0.1 * made(n, *p.shape))
    return net.eval()


def ids(rows, length):
    return torch.randint(0, 30, (rows, length), generator=torch.Generator().manual_seed(1))


def near(got, want, share=0.1):
    """The difference's size over that of the wanted numbers. Roundings of 8 bits come to some percent in two layers as
    narrow as these; a token that goes to another expert is some percent too."""
    error = ((got.float() - want).norm() / want.norm()).item()
    assert error <= share, error  # NaN fails too


@mixers
def test_casts_leave_what_decides_over_stability(op):
    net = net_of(op)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    net.to(BF16)
    kept = {n.removeprefix(f"layers.{i}.op.") for i in (0, 1) for n, p in net.named_parameters()
            if p.dtype == torch.float32}  # fmt: skip
    assert {n for n in kept if not n.startswith("layers")} == MIXERS[op]
    for name, p in net.named_parameters():
        stays = name.split(".op.")[-1] in MIXERS[op]
        assert p.dtype == (torch.float32 if stays else BF16), name
        assert torch.equal(p, before[name] if stays else before[name].to(BF16)), name


def rounded(op):
    """The net in bf16, and one in fp32 with the same weights."""
    half, wide = net_of(op).to(BF16), net_of(op)
    wide.load_state_dict({n: p.float() for n, p in half.state_dict().items()})
    return half, wide


@mixers
@torch.no_grad()
def test_a_bf16_net_computes_what_its_weights_say(op):
    half, wide = rounded(op)
    tokens = ids(2, 40)
    want = wide(tokens).logits
    assert half(tokens).logits.dtype == BF16
    near(half(tokens).logits, want)
    cache = half.new_cache(2, 40)
    parts = [half(tokens[:, :20], cache=cache).logits]
    parts += [half(tokens[:, t : t + 1], cache=cache).logits for t in range(20, 40)]
    near(torch.cat(parts, 1), want)
    row = half(tokens.reshape(1, -1), seq=hybridc.PackedSeq([0, 40, 80])).logits
    near(row.view_as(want), want)


@mixers
def test_a_net_under_autocast_computes_what_its_weights_say(op):
    net = net_of(op)
    tokens = ids(2, 40)
    with torch.no_grad():
        want = net(tokens).logits
        with torch.autocast("cpu", BF16):
            near(net(tokens).logits, want)
            cache = net.new_cache(2, 40)
            parts = [net(tokens[:, :20], cache=cache).logits]
            parts += [net(tokens[:, t : t + 1], cache=cache).logits for t in range(20, 40)]
    near(torch.cat(parts, 1), want)


@mixers
@pytest.mark.parametrize("how", ["cast", "autocast"])
def test_gradients_keep_their_direction(how, op):
    half, wide = rounded(op)
    net = half if how == "cast" else net_of(op)
    net.load_state_dict(half.state_dict())
    tokens = ids(1, 20)
    with torch.autocast("cpu", BF16, enabled=how == "autocast"):
        loss = net(tokens, labels=tokens).loss
    assert loss.dtype == torch.float32
    loss.backward()
    wide(tokens, labels=tokens).loss.backward()
    trained = [n for n, p in wide.named_parameters() if p.requires_grad]
    assert all(net.get_parameter(n).grad.dtype == net.get_parameter(n).dtype for n in trained)
    got, want = (torch.cat([m.get_parameter(n).grad.float().flatten() for n in trained]) for m in (net, wide))
    near(got, want, 0.2)


@mixers
@pytest.mark.parametrize("how", ["cast", "autocast"])
@torch.no_grad()
def test_states_are_fp32_and_hold_more_than_bf16(how, op):
    net = net_of(op)
    net = net.to(BF16) if how == "cast" else net
    tokens = ids(2, 12)
    cache = net.new_cache(2, 12)
    with torch.autocast("cpu", BF16, enabled=how == "autocast"):
        for piece in tokens.split([7, 1, 1, 3], dim=1):
            net(piece, cache=cache)
    for layer in cache.layers:
        for entry in layer.values():
            states = {n: t for n, t in vars(entry).items() if n in ("ssm", "conv")}
            assert bool(states) == (op in STATES)
            assert all(t.dtype == torch.float32 for t in states.values())
            if "ssm" in states:
                assert not torch.equal(states["ssm"], states["ssm"].to(BF16).float())


@pytest.mark.parametrize("op", sorted(STATES))
def test_states_are_fp32_under_another_default(op):
    net = net_of(op).to(BF16)
    torch.set_default_dtype(BF16)
    try:
        cache = net.new_cache(1, 4)
    finally:
        torch.set_default_dtype(torch.float32)
    states = [t for layer in cache.layers for entry in layer.values() for t in vars(entry).values()]
    assert states and all(t.dtype == torch.float32 for t in states)


def scans():
    """(function, its inputs) of what runs over time."""
    ctx = packed([0, 3, 20, 39])
    dt = made(2, 1, 39, 4).square()
    heads, groups = (made(n, 1, 39, 4, 3) for n in (1, 3)), (made(n, 1, 39, 2, 3) for n in (4, 5))
    x, v = heads
    b, c = groups
    wide = made(6, 1, 39, 4)
    return {
        "ssd": (lambda *i: ops.ssd(*i, ctx, chunk=8), [x, dt, -made(7, 4).exp(), b, c, made(8, 4)]),
        "selective_scan": (
            lambda *i: ops.selective_scan(*i, ctx), [wide, dt, -made(7, 4, 2).exp(), b[..., 0], c[..., 0], made(8, 4)]
        ),
        "gated_delta_rule": (lambda *i: ops.gated_delta_rule(*i, ctx), [b, c, v, -dt, dt.sigmoid()]),
        "gated_delta_rule by channel": (lambda *i: ops.gated_delta_rule(*i, ctx), [x, v, v, -x.square(), dt.sigmoid()]),
        "lightning_attention": (
            lambda *i: ops.lightning_attention(*i, ops.alibi_slopes(4, 1.0, x.device), ctx), [x, v, v + x]
        ),
        "rg_lru": (lambda *i: ops.rg_lru(*i, ctx), [wide, dt, made(9, 1, 39, 4), made(8, 4)]),
        "router_logits": (ops.router_logits, [wide, made(8, 6, 4), made(9, 6)]),
    }  # fmt: skip


@pytest.mark.parametrize("name", scans())
def test_autocast_changes_no_bit_of_what_is_fp32_inside(name):
    function, given = scans()[name]

    def run(enabled):
        inputs = [i.clone().requires_grad_() for i in given]
        with torch.autocast("cpu", BF16, enabled=enabled):
            y = function(*inputs)
        (y * made(10, *y.shape)).sum().backward()
        return [y, *(i.grad for i in inputs)]

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))


@pytest.mark.parametrize("name", ["ssd", "selective_scan", "gated_delta_rule", "gated_delta_rule by channel"])
@torch.no_grad()
def test_autocast_changes_no_bit_of_a_step(name):
    _, given = scans()[name]
    given = [i[:, :1] if i.dim() > 2 else i for i in given]
    shape = {"ssd": (4, 3, 3), "selective_scan": (4, 2), "gated_delta_rule": (4, 3, 3)}[name.split(" ")[0]]
    if name == "selective_scan":
        given[3:5] = made(4, 1, 1, 2), made(5, 1, 1, 2)

    def run(enabled):
        state = ops.ScanState(1, ssm=shape, device=torch.device("cpu"), dtype=BF16)
        state.ssm.copy_(made(11, 1, *shape))
        with torch.autocast("cpu", BF16, enabled=enabled):
            y = {"ssd": ops.ssd, "selective_scan": ops.selective_scan}.get(name, ops.gated_delta_rule)(
                *given, plain(1, 1), state
            )
        return y, state.ssm

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))


@pytest.mark.parametrize("op", [op for op in MIXERS if op.startswith("moe")])
@torch.no_grad()
def test_tokens_go_to_the_experts_of_fp32_logits(op):
    module, x = net_of(op).layers[0].op, made(1, 2, 30, DIM)

    def chosen(enabled):
        ctx, seen = Context(torch.zeros(2, 30, dtype=torch.int64)), []
        ctx.router_stats = lambda name, logits, ids, **_: seen.append((logits, ids))
        with torch.autocast("cpu", BF16, enabled=enabled):
            module(x, ctx)
        (router,) = seen
        return router

    logits, ids = chosen(True)
    assert logits.dtype == torch.float32
    assert torch.equal(logits, chosen(False)[0]) and torch.equal(ids, chosen(False)[1])
