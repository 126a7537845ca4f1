"""A hybrid of every mixer, written by hand as emitted code is, the same in the language, and how to look at them."""

# ruff: noqa: RUF012  (emitted classes hold their INIT so)

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.init import a_log, a_log_range, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import Context, LanguageModel

VOCAB = 50
ROPE = ops.Rope(dim=6, theta=1000.0)


class Attention(nn.Module):
    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.01)}

    def __init__(self, window=None):
        super().__init__()
        self.qkv = nn.Linear(32, 64, bias=False)
        self.out = nn.Linear(32, 32, bias=False)
        self.window = window

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=2, head_dim=8, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((32, 16, 16), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (4, 8)), k.unflatten(-1, (2, 8)), ctx.rope(ROPE))
        y = ops.attention(q, k, v.unflatten(-1, (2, 8)), ctx, state, scale=0.35, window=self.window)
        return self.out(y.flatten(-2))


class Mamba2(nn.Module):
    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(), "A_log": a_log(1.0, 16.0),
        "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 1e-4), "norm.weight": ones(), "out_proj.weight": normal(0.01),
    }  # fmt: skip

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(32, 100, bias=False)
        self.conv = ops.CausalConv1d(64, 4, bias=True)
        self.A_log, self.D, self.dt_bias = (nn.Parameter(torch.empty(4)) for _ in range(3))
        self.norm = ops.GatedRMSNorm(32, eps=1e-5, groups=2, gate_first=True)
        self.out_proj = nn.Linear(32, 32, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(64, 4), ssm=(4, 8, 8), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((32, 64, 4), dim=-1)
        u, b, c = F.silu(self.conv(xbc, ctx, state)).split((32, 16, 16), dim=-1)
        dt, a = F.softplus(dt.float() + self.dt_bias), -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (4, 8)), b.unflatten(-1, (2, 8)), c.unflatten(-1, (2, 8))
        return self.out_proj(self.norm(ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=8).flatten(-2), z))


class Mamba(nn.Module):
    FP32 = ("A_log", "D", "dt_proj.bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(), "x_proj.weight": normal(0.2),
        "dt_proj.weight": uniform(0.7), "dt_proj.bias": dt_bias(0.001, 0.1, 1e-4), "A_log": a_log_range(), "D": ones(),
        "out_proj.weight": normal(0.01),
    }  # fmt: skip

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(32, 128, bias=False)
        self.conv = ops.CausalConv1d(64, 4, bias=True)
        self.x_proj = nn.Linear(64, 2 + 8, bias=False)
        self.dt_proj = nn.Linear(2, 64)
        self.A_log, self.D = nn.Parameter(torch.empty(64, 4)), nn.Parameter(torch.empty(64))
        self.out_proj = nn.Linear(64, 32, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(64, 4), ssm=(64, 4), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = F.silu(self.conv(u, ctx, state))
        dt, b, c = self.x_proj(u).split((2, 4, 4), dim=-1)
        dt = F.softplus(F.linear(dt, self.dt_proj.weight).float() + self.dt_proj.bias)
        y = ops.selective_scan(u, dt, -self.A_log.float().exp(), b, c, self.D, ctx, state)
        return self.out_proj(y * F.silu(z))


class Moe(nn.Module):
    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.01)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(32, 4, bias=False)
        self.experts = ops.Experts(4, 32, 24, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=4, aux_coef=0.01, z_coef=0.001)
        return self.experts(x, weights.to(x.dtype), ids)


class Block(nn.Module):
    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self, mixer):
        super().__init__()
        self.norm, self.norm_2 = nn.RMSNorm(32, eps=1e-5), nn.RMSNorm(32, eps=1e-5)
        self.mixer, self.moe = mixer, Moe()

    def forward(self, x, ctx, state):
        x = x + self.mixer(self.norm(x), ctx, state.get("mixer"))
        return x + self.moe(self.norm_2(x), ctx)


class Embed(nn.Module):
    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 32)

    def forward(self, ids):
        return self.embedding(ids)


class Head(nn.Module):
    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(32, eps=1e-5)
        self.lm_head = nn.Linear(32, VOCAB, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Zoo(LanguageModel):
    """M V A M A: the two M are one block, and the second A sees 5 tokens."""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        shared = Block(Mamba2())
        self.layers = nn.ModuleList([shared, Block(Mamba()), Block(Attention()), shared, Block(Attention(window=5))])
        self.head = Head()
        self.tie_weights()

    def tie_weights(self):
        self.head.lm_head.weight = self.embed.embedding.weight

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)


SPEC = """model zoo {
  param dim = 32
  let norm = rmsnorm()
  block M { x += norm >> mamba2(heads=4, head_dim=8, state=8, groups=2, chunk=8, norm=gated_rmsnorm(groups=2)) }
  block V { x += norm >> mamba(state=4) }
  block A(window=none) {
    x += norm >> (attn: attention(heads=4, kv_heads=2, rope=rope(), window=window, qk_norm=norm)
      | mamba2(heads=2, head_dim=16, state=4, chunk=4))
    x += norm >> moe(experts=4, hidden=24, top_k=2, shared=8, aux_coef=0.01, z_coef=0.001)
  }
  shared(2) block S { x += concat(x, x0) >> norm >> linear(32) >> swiglu(16) }
  embed = embedding(50)
  layers = M S A S V S A(window=5)
  head = norm >> lm_head(50, tied=true)
}"""


def loud(net):
    """Weights so large that an error anywhere shows in the logits."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.dim() >= 2 and "A_log" not in name and "conv" not in name and "dt_proj" not in name:
                p.mul_(6.0)
    return net.eval()


def ids(*shape, seed=0):
    return torch.randint(1, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def alone(net, row):
    """Logits [S, vocab] of one sequence [S] without neighbours, padding or cache."""
    with torch.no_grad():
        return net(row[None]).logits[0]


def same(a, b, tolerance=2e-5):
    worst = (a - b).abs().max().item() / max(1.0, b.abs().max().item()) if a.numel() else 0.0
    assert worst < tolerance, worst
