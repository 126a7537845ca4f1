"""jamba_52b: 32 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 507d7d5358b6).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log_range, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel


class Embed(nn.Module):
    """embed = embedding(65536, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(65536, 4096)

    def forward(self, ids):
        return self.embedding(ids)


class MambaSsm(nn.Module):
    """ssm: mamba(norm=rmsnorm(eps=1e-6))"""

    FP32 = ("dt_proj.bias", "A_log", "D")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "x_proj.weight": normal(0.02), "dt_norm.weight": ones(), "B_norm.weight": ones(), "C_norm.weight": ones(),
        "dt_proj.weight": uniform(0.0625), "dt_proj.bias": dt_bias(0.001, 0.1, 0.0001), "A_log": a_log_range(),
        "D": ones(), "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(4096, 16384, bias=False)  # 8192 x, 8192 z rows
        self.conv = ops.CausalConv1d(8192, 4, bias=True)
        self.x_proj = nn.Linear(8192, 288, bias=False)  # 256 dt, 16 B, 16 C rows
        self.dt_norm = nn.RMSNorm(256, eps=1e-6)
        self.B_norm = nn.RMSNorm(16, eps=1e-6)
        self.C_norm = nn.RMSNorm(16, eps=1e-6)
        self.dt_proj = nn.Linear(256, 8192)
        self.A_log = nn.Parameter(torch.empty(8192, 16))
        self.D = nn.Parameter(torch.empty(8192))
        self.out_proj = nn.Linear(8192, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(8192, 4), ssm=(8192, 16), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = self.conv(u, ctx, state, silu=True)
        dt, b, c = self.x_proj(u).split((256, 16, 16), dim=-1)
        dt, b, c = self.dt_norm(dt), self.B_norm(b), self.C_norm(c)
        dt = F.softplus(F.linear(dt, self.dt_proj.weight).float() + self.dt_proj.bias)
        y = ops.selective_scan(u, dt, -self.A_log.float().exp(), b, c, self.D, ctx, state)
        return self.out_proj(y * F.silu(z))


class MambaMlp(nn.Module):
    """mlp: swiglu(14336)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(4096, 28672, bias=False)  # 14336 gate, 14336 up rows
        self.down = nn.Linear(14336, 4096, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Mamba(nn.Module):
    """x += norm >> ssm
    x += norm >> mlp
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-6)
        self.ssm = MambaSsm()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-6)
        self.mlp = MambaMlp()

    def forward(self, x, ctx, state):
        x = x + self.ssm(self.norm(x), ctx, state.get("ssm"))
        return x + self.mlp(self.norm_2(x))


class MambaMoeSsm(nn.Module):
    """ssm: mamba(norm=rmsnorm(eps=1e-6))"""

    FP32 = ("dt_proj.bias", "A_log", "D")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "x_proj.weight": normal(0.02), "dt_norm.weight": ones(), "B_norm.weight": ones(), "C_norm.weight": ones(),
        "dt_proj.weight": uniform(0.0625), "dt_proj.bias": dt_bias(0.001, 0.1, 0.0001), "A_log": a_log_range(),
        "D": ones(), "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(4096, 16384, bias=False)  # 8192 x, 8192 z rows
        self.conv = ops.CausalConv1d(8192, 4, bias=True)
        self.x_proj = nn.Linear(8192, 288, bias=False)  # 256 dt, 16 B, 16 C rows
        self.dt_norm = nn.RMSNorm(256, eps=1e-6)
        self.B_norm = nn.RMSNorm(16, eps=1e-6)
        self.C_norm = nn.RMSNorm(16, eps=1e-6)
        self.dt_proj = nn.Linear(256, 8192)
        self.A_log = nn.Parameter(torch.empty(8192, 16))
        self.D = nn.Parameter(torch.empty(8192))
        self.out_proj = nn.Linear(8192, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(8192, 4), ssm=(8192, 16), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = self.conv(u, ctx, state, silu=True)
        dt, b, c = self.x_proj(u).split((256, 16, 16), dim=-1)
        dt, b, c = self.dt_norm(dt), self.B_norm(b), self.C_norm(c)
        dt = F.softplus(F.linear(dt, self.dt_proj.weight).float() + self.dt_proj.bias)
        y = ops.selective_scan(u, dt, -self.A_log.float().exp(), b, c, self.D, ctx, state)
        return self.out_proj(y * F.silu(z))


class MambaMoeMoe(nn.Module):
    """moe: moe(experts=16, hidden=14336, top_k=2, renormalize=false)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4096, 16, bias=False)
        self.experts = ops.Experts(16, 4096, 14336, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=False)
        ctx.router_stats("moe", logits, ids, experts=16, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class MambaMoe(nn.Module):
    """x += norm >> ssm
    x += norm >> moe(experts=16, hidden=14336, top_k=2, renormalize=false)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-6)
        self.ssm = MambaMoeSsm()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-6)
        self.moe = MambaMoeMoe()

    def forward(self, x, ctx, state):
        x = x + self.ssm(self.norm(x), ctx, state.get("ssm"))
        return x + self.moe(self.norm_2(x), ctx)


class AttentionAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 6144, bias=False)  # 4096 query, 1024 key, 1024 value rows
        self.out = nn.Linear(4096, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((4096, 1024, 1024), dim=-1)
        q, k = q.unflatten(-1, (32, 128)), k.unflatten(-1, (8, 128))
        v = v.unflatten(-1, (8, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class AttentionMlp(nn.Module):
    """mlp: swiglu(14336)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(4096, 28672, bias=False)  # 14336 gate, 14336 up rows
        self.down = nn.Linear(14336, 4096, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Attention(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=8)
    x += norm >> mlp
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-6)
        self.attn = AttentionAttn()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-6)
        self.mlp = AttentionMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(65536)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-6)
        self.lm_head = nn.Linear(4096, 65536, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """jamba_52b: (Mamba MambaMoe Mamba MambaMoe Attention MambaMoe Mamba MambaMoe) * 4"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            Mamba, MambaMoe, Mamba, MambaMoe, Attention, MambaMoe, Mamba, MambaMoe, Mamba, MambaMoe, Mamba, MambaMoe,
            Attention, MambaMoe, Mamba, MambaMoe, Mamba, MambaMoe, Mamba, MambaMoe, Attention, MambaMoe, Mamba,
            MambaMoe, Mamba, MambaMoe, Mamba, MambaMoe, Attention, MambaMoe, Mamba, MambaMoe,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
