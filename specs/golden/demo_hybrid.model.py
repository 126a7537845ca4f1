"""demo_hybrid: 4 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 87f0ca1bc198).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=32, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(256)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, 160)

    def forward(self, ids):
        return self.embedding(ids)


class SsmMamba2(nn.Module):
    """mamba2: mamba2(heads=10, head_dim=32, state=32, chunk=64)"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001),
        "out_proj.weight": normal(0.007071),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(160, 714, bias=False)  # 320 z, 320 x, 32 B, 32 C, 10 dt rows
        self.conv = ops.CausalConv1d(384, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(10))
        self.D = nn.Parameter(torch.empty(10))
        self.dt_bias = nn.Parameter(torch.empty(10))
        self.out_proj = nn.Linear(320, 160, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(384, 4), ssm=(10, 32, 32), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((320, 384, 10), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((320, 32, 32), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias)
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (10, 32)), b.unflatten(-1, (1, 32)), c.unflatten(-1, (1, 32))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=64).flatten(-2)
        return self.out_proj(y * F.silu(z))


class SsmSwiglu(nn.Module):
    """swiglu: swiglu(448)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.007071)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(160, 896, bias=False)  # 448 gate, 448 up rows
        self.down = nn.Linear(448, 160, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Ssm(nn.Module):
    """x += norm >> mamba2(heads=10, head_dim=32, state=32, chunk=64)
    x += norm >> swiglu(448)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(160, eps=1e-5)
        self.mamba2 = SsmMamba2()
        self.norm_2 = nn.RMSNorm(160, eps=1e-5)
        self.swiglu = SsmSwiglu()

    def forward(self, x, ctx, state):
        x = x + self.mamba2(self.norm(x), ctx, state.get("mamba2"))
        return x + self.swiglu(self.norm_2(x))


class AttnAttention(nn.Module):
    """attention: attention(heads=5, kv_heads=1, rope=rope(theta=10000))"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.007071)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(160, 224, bias=False)  # 160 query, 32 key, 32 value rows
        self.out = nn.Linear(160, 160, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=1, head_dim=32, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((160, 32, 32), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (5, 32)), k.unflatten(-1, (1, 32)), ctx.rope(ROPE))
        v = v.unflatten(-1, (1, 32))
        y = ops.attention(q, k, v, ctx, state, scale=0.1767766952966369)
        return self.out(y.flatten(-2))


class AttnSwiglu(nn.Module):
    """swiglu: swiglu(448)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.007071)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(160, 896, bias=False)  # 448 gate, 448 up rows
        self.down = nn.Linear(448, 160, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Attn(nn.Module):
    """x += norm >> attention(heads=5, kv_heads=1, rope=rope(theta=10000))
    x += norm >> swiglu(448)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(160, eps=1e-5)
        self.attention = AttnAttention()
        self.norm_2 = nn.RMSNorm(160, eps=1e-5)
        self.swiglu = AttnSwiglu()

    def forward(self, x, ctx, state):
        x = x + self.attention(self.norm(x), ctx, state.get("attention"))
        return x + self.swiglu(self.norm_2(x))


class SsmMoeMamba2(nn.Module):
    """mamba2: mamba2(heads=10, head_dim=32, state=32, chunk=64)"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001),
        "out_proj.weight": normal(0.007071),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(160, 714, bias=False)  # 320 z, 320 x, 32 B, 32 C, 10 dt rows
        self.conv = ops.CausalConv1d(384, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(10))
        self.D = nn.Parameter(torch.empty(10))
        self.dt_bias = nn.Parameter(torch.empty(10))
        self.out_proj = nn.Linear(320, 160, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(384, 4), ssm=(10, 32, 32), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((320, 384, 10), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((320, 32, 32), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias)
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (10, 32)), b.unflatten(-1, (1, 32)), c.unflatten(-1, (1, 32))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=64).flatten(-2)
        return self.out_proj(y * F.silu(z))


class SsmMoeMoe(nn.Module):
    """moe: moe(experts=8, hidden=160, top_k=2, aux_coef=0.01)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.007071)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(160, 8, bias=False)
        self.experts = ops.Experts(8, 160, 160, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=8, aux_coef=0.01, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class SsmMoe(nn.Module):
    """x += norm >> mamba2(heads=10, head_dim=32, state=32, chunk=64)
    x += norm >> moe(experts=8, hidden=160, top_k=2, aux_coef=0.01)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(160, eps=1e-5)
        self.mamba2 = SsmMoeMamba2()
        self.norm_2 = nn.RMSNorm(160, eps=1e-5)
        self.moe = SsmMoeMoe()

    def forward(self, x, ctx, state):
        x = x + self.mamba2(self.norm(x), ctx, state.get("mamba2"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(256, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(160, eps=1e-5)
        self.lm_head = nn.Linear(160, 256, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """demo_hybrid: Ssm * 2 Attn SsmMoe"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Ssm,) * 2 + (Attn, SsmMoe))
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
