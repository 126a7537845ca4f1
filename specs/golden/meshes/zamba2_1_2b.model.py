"""zamba2_1_2b: 38 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 ad4f9d3c6740).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel
from hybridc.runtime.parallel.shards import split, whole

ROPE = ops.Rope(dim=128, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(32000, dim)"""

    INIT = {"embedding.weight": normal(0.02)}
    SHARDS = {"embedding.weight": split(32000)}

    def __init__(self):
        super().__init__()
        self.embedding = ops.VocabEmbedding(16000, 2048)

    def forward(self, ids, ctx):
        return ctx.tp.reduce_scatter(self.embedding(ids))


class MambaSsm(nn.Module):
    """ssm: mamba2(heads=64, dt_limit=(0.001, inf), norm=gated_rmsnorm())"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(),
        "out_proj.weight": normal(0.02),
    }
    SHARDS = {
        "in_proj.weight": split(4096, 4096, 128, 128, 64, copies=(1, 1, 2, 2, 1)),
        "conv.weight": split(4096, 128, 128, copies=(1, 2, 2)),
        "conv.bias": split(4096, 128, 128, copies=(1, 2, 2)), "A_log": split(64), "D": split(64),
        "dt_bias": split(64), "norm.weight": split(4096), "out_proj.weight": split(4096, dim=1),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2048, 4384, bias=False)  # 2048 z, 2048 x, 128 B, 128 C, 32 dt rows
        self.conv = ops.CausalConv1d(2304, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(32))
        self.D = nn.Parameter(torch.empty(32))
        self.dt_bias = nn.Parameter(torch.empty(32))
        self.norm = ops.SplitGatedRMSNorm(2048, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(2304, 4), ssm=(32, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((2048, 2304, 32), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((2048, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias).clamp(0.001, float("inf"))
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (32, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=256).flatten(-2)
        return self.out_proj(self.norm(y, z))


class Mamba(nn.Module):
    """x += norm >> ssm"""

    INIT = {"norm.weight": ones()}
    SHARDS = {"norm.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.ssm = MambaSsm()

    def forward(self, x, x0, ctx, state):
        return x + ctx.tp.reduce_scatter(self.ssm(ctx.tp.all_gather(self.norm(x)), ctx, state.get("ssm")))


class HybridAttn(nn.Module):
    """attn: attention(heads=32, rope=rope(), scale=0.125, out_dim=dim, adapter=lora(rank=128))"""

    INIT = {
        "qkv.weight": normal(0.02), "adapter.down.weight": uniform(0.01562), "adapter.up.0.weight": zeros(),
        "adapter.up.1.weight": zeros(), "adapter.up.2.weight": zeros(), "out.weight": normal(0.02),
    }
    SHARDS = {
        "qkv.weight": split(4096, 4096, 4096), "adapter.down.weight": whole(), "adapter.up.0.weight": split(4096),
        "adapter.up.1.weight": split(4096), "adapter.up.2.weight": split(4096), "out.weight": split(4096, dim=1),
    }

    def __init__(self, shared=None):
        super().__init__()
        if shared is None:
            self.qkv = nn.Linear(4096, 6144, bias=False)  # 2048 query, 2048 key, 2048 value rows
            self.out = nn.Linear(2048, 2048, bias=False)
        else:
            self.qkv, self.out = shared.qkv, shared.out
        self.adapter = ops.Lora(4096, 128, (2048, 2048, 2048))

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=16, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = (self.qkv(x) + self.adapter(x)).split((2048, 2048, 2048), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (16, 128)), k.unflatten(-1, (16, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (16, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.125)
        return self.out(y.flatten(-2))


class HybridMlp(nn.Module):
    """mlp: geglu(8192, adapter=lora(rank=128))"""

    INIT = {
        "gate_up.weight": normal(0.02), "adapter.down.weight": uniform(0.0221), "adapter.up.0.weight": zeros(),
        "down.weight": normal(0.02),
    }
    SHARDS = {
        "gate_up.weight": split(8192, 8192), "adapter.down.weight": whole(),
        "adapter.up.0.weight": split(8192, 8192), "down.weight": split(8192, dim=1),
    }

    def __init__(self, shared=None):
        super().__init__()
        if shared is None:
            self.gate_up = nn.Linear(2048, 8192, bias=False)  # 4096 gate, 4096 up rows
            self.down = nn.Linear(4096, 2048, bias=False)
        else:
            self.gate_up, self.down = shared.gate_up, shared.down
        self.adapter = ops.Lora(2048, 128, (8192,))

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
    SHARDS = {
        "in_proj.weight": split(4096, 4096, 128, 128, 64, copies=(1, 1, 2, 2, 1)),
        "conv.weight": split(4096, 128, 128, copies=(1, 2, 2)),
        "conv.bias": split(4096, 128, 128, copies=(1, 2, 2)), "A_log": split(64), "D": split(64),
        "dt_bias": split(64), "norm.weight": split(4096), "out_proj.weight": split(4096, dim=1),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2048, 4384, bias=False)  # 2048 z, 2048 x, 128 B, 128 C, 32 dt rows
        self.conv = ops.CausalConv1d(2304, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(32))
        self.D = nn.Parameter(torch.empty(32))
        self.dt_bias = nn.Parameter(torch.empty(32))
        self.norm = ops.SplitGatedRMSNorm(2048, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(2304, 4), ssm=(32, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((2048, 2304, 32), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((2048, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias).clamp(0.001, float("inf"))
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (32, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=256).flatten(-2)
        return self.out_proj(self.norm(y, z))


class Hybrid(nn.Module):
    """side = concat(x, x0) >> norm >> attn: attention(heads=32, rope=rope(), scale=0.125, out_dim=dim,
    adapter=lora(rank=128)) >> norm >> mlp: geglu(8192, adapter=lora(rank=128)) >> own(linear(dim))
    x += x + side >> own(norm) >> own(ssm)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones(), "linear.weight": normal(0.02), "norm_3.weight": ones()}
    SHARDS = {"norm.weight": whole(), "norm_2.weight": whole()}

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
        h = ctx.tp.all_gather(x)
        h_2 = self.attn(self.norm(torch.cat((h, ctx.tp.all_gather(x0)), dim=-1)), ctx, state.get("attn"))
        h_3 = ctx.tp.all_reduce(self.mlp(ctx.tp.all_gather(self.norm_2(ctx.tp.reduce_scatter(h_2)))))
        side = self.linear(h_3)
        h_4 = ctx.tp.copy(self.norm_3(ctx.tp.copy(h, back="share") + side))
        return x + ctx.tp.reduce_scatter(self.ssm(h_4, ctx, state.get("ssm")))


class Head(nn.Module):
    """head = norm >> lm_head(32000, tied=true)"""

    INIT = {"norm.weight": ones()}
    SHARDS = {"norm.weight": whole(), "lm_head.weight": split(32000)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.lm_head = nn.Linear(2048, 16000, bias=False)

    def forward(self, x, ctx):
        return self.lm_head(ctx.tp.all_gather(self.norm(x)))


class Model(LanguageModel):
    """zamba2_1_2b: (Mamba Mamba Mamba Mamba Mamba Hybrid) * 6 Mamba * 2"""

    MESH = {"pp": 2, "tp": 2}

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

    def stage(self, layers, ctx, x=None, x0=None):
        if x is None:
            x = x0 = self.embed(ctx.input_ids, ctx)
        for i in layers:
            x = self.layers[i](x, x0, ctx, ctx.state(i))
        return x, x0

    def tie_weights(self):
        self.head.lm_head.weight = self.embed.embedding.weight

    def output(self, ctx, x, labels=None):
        return ctx.output_over(32000, self.head(x, ctx), labels)
