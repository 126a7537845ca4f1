"""granite_4_h_tiny: 40 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 c2067c1c94d1).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel


class Embed(nn.Module):
    """embed = embedding(100352, dim, scale=12.0)"""

    INIT = {"embedding.weight": normal(0.1)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100352, 1536)

    def forward(self, ids):
        return 12.0 * self.embedding(ids)


class MambaSsm(nn.Module):
    """ssm: mamba2(heads=48, norm=gated_rmsnorm())"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.1), "conv.weight": uniform(0.5), "conv.bias": zeros(), "A_log": a_log(1.0, 16.0),
        "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(), "out_proj.weight": normal(0.1),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(1536, 6448, bias=False)  # 3072 z, 3072 x, 128 B, 128 C, 48 dt rows
        self.conv = ops.CausalConv1d(3328, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(48))
        self.D = nn.Parameter(torch.empty(48))
        self.dt_bias = nn.Parameter(torch.empty(48))
        self.norm = ops.GatedRMSNorm(3072, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(3072, 1536, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(3328, 4), ssm=(48, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((3072, 3328, 48), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((3072, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias)
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (48, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=256).flatten(-2)
        return self.out_proj(self.norm(y, z))


class MambaMoe(nn.Module):
    """moe: moe(experts=64, hidden=512, top_k=6)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.1), "experts.gate_up": normal(0.1), "experts.down": normal(0.1)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(1536, 64, bias=False)
        self.experts = ops.Experts(64, 1536, 512, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 6, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=64, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class MambaMlp(nn.Module):
    """mlp: swiglu(1024)"""

    INIT = {"gate_up.weight": normal(0.1), "down.weight": normal(0.1)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(1536, 2048, bias=False)  # 1024 gate, 1024 up rows
        self.down = nn.Linear(1024, 1536, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Mamba(nn.Module):
    """x += norm >> ssm: mamba2(heads=48, norm=gated_rmsnorm()) >> scale(0.22)
    x += norm >> (moe | mlp) >> scale(0.22)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1536, eps=1e-5)
        self.ssm = MambaSsm()
        self.norm_2 = nn.RMSNorm(1536, eps=1e-5)
        self.moe = MambaMoe()
        self.mlp = MambaMlp()

    def forward(self, x, ctx, state):
        x = x + 0.22 * self.ssm(self.norm(x), ctx, state.get("ssm"))
        h = self.norm_2(x)
        return x + 0.22 * (self.moe(h, ctx) + self.mlp(h))


class AttentionAttn(nn.Module):
    """attn: attention(heads=12, kv_heads=4, scale=0.0078125)"""

    INIT = {"qkv.weight": normal(0.1), "out.weight": normal(0.1)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1536, 2560, bias=False)  # 1536 query, 512 key, 512 value rows
        self.out = nn.Linear(1536, 1536, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((1536, 512, 512), dim=-1)
        q, k = q.unflatten(-1, (12, 128)), k.unflatten(-1, (4, 128))
        v = v.unflatten(-1, (4, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.0078125)
        return self.out(y.flatten(-2))


class AttentionMoe(nn.Module):
    """moe: moe(experts=64, hidden=512, top_k=6)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.1), "experts.gate_up": normal(0.1), "experts.down": normal(0.1)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(1536, 64, bias=False)
        self.experts = ops.Experts(64, 1536, 512, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 6, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=64, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class AttentionMlp(nn.Module):
    """mlp: swiglu(1024)"""

    INIT = {"gate_up.weight": normal(0.1), "down.weight": normal(0.1)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(1536, 2048, bias=False)  # 1024 gate, 1024 up rows
        self.down = nn.Linear(1024, 1536, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Attention(nn.Module):
    """x += norm >> attn: attention(heads=12, kv_heads=4, scale=0.0078125) >> scale(0.22)
    x += norm >> (moe | mlp) >> scale(0.22)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1536, eps=1e-5)
        self.attn = AttentionAttn()
        self.norm_2 = nn.RMSNorm(1536, eps=1e-5)
        self.moe = AttentionMoe()
        self.mlp = AttentionMlp()

    def forward(self, x, ctx, state):
        x = x + 0.22 * self.attn(self.norm(x), ctx, state.get("attn"))
        h = self.norm_2(x)
        return x + 0.22 * (self.moe(h, ctx) + self.mlp(h))


class Head(nn.Module):
    """head = norm >> lm_head(100352, scale=0.16666666666666666, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1536, eps=1e-5)
        self.lm_head = nn.Linear(1536, 100352, bias=False)

    def forward(self, x):
        return 0.16666666666666666 * self.lm_head(self.norm(x))


class Model(LanguageModel):
    """granite_4_h_tiny: (Mamba Mamba Mamba Mamba Mamba Attention Mamba Mamba Mamba Mamba) * 4"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            Mamba, Mamba, Mamba, Mamba, Mamba, Attention, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba,
            Attention, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Attention, Mamba, Mamba, Mamba,
            Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Attention, Mamba, Mamba, Mamba, Mamba,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
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
