"""zamba2_1_2b: 38 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 2958b01d21e8).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(32000, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32000, 2048)

    def forward(self, ids):
        return self.embedding(ids)


class MambaSsm(nn.Module):
    """ssm: mamba2(heads=64, dt_limit=(0.001, inf), norm=gated_rmsnorm())"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(),
        "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2048, 8512, bias=False)  # 4096 z, 4096 x, 128 B, 128 C, 64 dt rows
        self.conv = ops.CausalConv1d(4352, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(64))
        self.D = nn.Parameter(torch.empty(64))
        self.dt_bias = nn.Parameter(torch.empty(64))
        self.norm = ops.GatedRMSNorm(4096, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(4096, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(4352, 4), ssm=(64, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((4096, 4352, 64), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((4096, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias).clamp(0.001, float("inf"))
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (64, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=256).flatten(-2)
        return self.out_proj(self.norm(y, z))


class Mamba(nn.Module):
    """x += norm >> ssm"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.ssm = MambaSsm()

    def forward(self, x, x0, ctx, state):
        return x + self.ssm(self.norm(x), ctx, state.get("ssm"))


class HybridAttn(nn.Module):
    """attn: attention(heads=32, rope=rope(), scale=0.125, out_dim=dim, adapter=lora(rank=128))"""

    INIT = {
        "qkv.weight": normal(0.02), "adapter.down.weight": uniform(0.01562), "adapter.up.0.weight": zeros(),
        "adapter.up.1.weight": zeros(), "adapter.up.2.weight": zeros(), "out.weight": normal(0.02),
    }

    def __init__(self, shared=None):
        super().__init__()
        if shared is None:
            self.qkv = nn.Linear(4096, 12288, bias=False)  # 4096 query, 4096 key, 4096 value rows
            self.out = nn.Linear(4096, 2048, bias=False)
        else:
            self.qkv, self.out = shared.qkv, shared.out
        self.adapter = ops.Lora(4096, 128, (4096, 4096, 4096))

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=32, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = (self.qkv(x) + self.adapter(x)).split((4096, 4096, 4096), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (32, 128)), k.unflatten(-1, (32, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (32, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.125)
        return self.out(y.flatten(-2))


class HybridMlp(nn.Module):
    """mlp: geglu(8192, adapter=lora(rank=128))"""

    INIT = {
        "gate_up.weight": normal(0.02), "adapter.down.weight": uniform(0.0221), "adapter.up.0.weight": zeros(),
        "down.weight": normal(0.02),
    }

    def __init__(self, shared=None):
        super().__init__()
        if shared is None:
            self.gate_up = nn.Linear(2048, 16384, bias=False)  # 8192 gate, 8192 up rows
            self.down = nn.Linear(8192, 2048, bias=False)
        else:
            self.gate_up, self.down = shared.gate_up, shared.down
        self.adapter = ops.Lora(2048, 128, (16384,))

    def forward(self, x):
        gate, up = (self.gate_up(x) + self.adapter(x)).chunk(2, dim=-1)
        return self.down(F.gelu(gate) * up)


class HybridSsm(nn.Module):
    """ssm: mamba2(heads=64, dt_limit=(0.001, inf), norm=gated_rmsnorm())"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(),
        "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2048, 8512, bias=False)  # 4096 z, 4096 x, 128 B, 128 C, 64 dt rows
        self.conv = ops.CausalConv1d(4352, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(64))
        self.D = nn.Parameter(torch.empty(64))
        self.dt_bias = nn.Parameter(torch.empty(64))
        self.norm = ops.GatedRMSNorm(4096, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(4096, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(4352, 4), ssm=(64, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((4096, 4352, 64), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((4096, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias).clamp(0.001, float("inf"))
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (64, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=256).flatten(-2)
        return self.out_proj(self.norm(y, z))


class Hybrid(nn.Module):
    """side = concat(x, x0) >> norm >> attn: attention(heads=32, rope=rope(), scale=0.125, out_dim=dim,
    adapter=lora(rank=128)) >> norm >> mlp: geglu(8192, adapter=lora(rank=128)) >> own(linear(dim))
    x += x + side >> own(norm) >> own(ssm)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones(), "linear.weight": normal(0.02), "norm_3.weight": ones()}

    def __init__(self, shared=None):
        super().__init__()
        if shared is None:
            self.norm = nn.RMSNorm(4096, eps=1e-5)
            self.norm_2 = nn.RMSNorm(2048, eps=1e-5)
        else:
            self.norm, self.norm_2 = shared.norm, shared.norm_2
        self.attn = HybridAttn(None if shared is None else shared.attn)
        self.mlp = HybridMlp(None if shared is None else shared.mlp)
        self.linear = nn.Linear(2048, 2048, bias=False)
        self.norm_3 = nn.RMSNorm(2048, eps=1e-5)
        self.ssm = HybridSsm()

    def forward(self, x, x0, ctx, state):
        h = self.norm_2(self.attn(self.norm(torch.cat((x, x0), dim=-1)), ctx, state.get("attn")))
        side = self.linear(self.mlp(h))
        return x + self.ssm(self.norm_3(x + side), ctx, state.get("ssm"))


class Head(nn.Module):
    """head = norm >> lm_head(32000, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.lm_head = nn.Linear(2048, 32000, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """zamba2_1_2b: (Mamba Mamba Mamba Mamba Mamba Hybrid) * 6 Mamba * 2"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _shared_Hybrid_0 = Hybrid()
        self.layers = nn.ModuleList([
            Mamba(), Mamba(), Mamba(), Mamba(), Mamba(), _shared_Hybrid_0, Mamba(), Mamba(), Mamba(), Mamba(), Mamba(),
            Hybrid(_shared_Hybrid_0), Mamba(), Mamba(), Mamba(), Mamba(), Mamba(), Hybrid(_shared_Hybrid_0), Mamba(),
            Mamba(), Mamba(), Mamba(), Mamba(), Hybrid(_shared_Hybrid_0), Mamba(), Mamba(), Mamba(), Mamba(), Mamba(),
            Hybrid(_shared_Hybrid_0), Mamba(), Mamba(), Mamba(), Mamba(), Mamba(), Hybrid(_shared_Hybrid_0), Mamba(),
            Mamba(),
        ])
        self.head = Head()
        self.tie_weights()

    def tie_weights(self):
        self.head.lm_head.weight = self.embed.embedding.weight

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = x0 = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, x0, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
