"""nemotron_h_8b: 52 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 727d09fbd185).
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


class Embed(nn.Module):
    """embed = embedding(131072, dim)"""

    INIT = {"embedding.weight": normal(0.02)}
    SHARDS = {"embedding.weight": split(131072)}

    def __init__(self):
        super().__init__()
        self.embedding = ops.VocabEmbedding(16384, 4096)

    def forward(self, ids, ctx):
        return ctx.tp.reduce_scatter(self.embedding(ids))


class MambaSsm(nn.Module):
    """ssm: mamba2(heads=128, groups=8, chunk=128, dt_limit=(0.001, inf), norm=gated_rmsnorm(groups=8))"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(),
        "out_proj.weight": normal(0.002774),
    }
    SHARDS = {
        "in_proj.weight": split(8192, 8192, 1024, 1024, 128), "conv.weight": split(8192, 1024, 1024),
        "conv.bias": split(8192, 1024, 1024), "A_log": split(128), "D": split(128), "dt_bias": split(128),
        "norm.weight": split(8192), "out_proj.weight": split(8192, dim=1),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(4096, 2320, bias=False)  # 1024 z, 1024 x, 128 B, 128 C, 16 dt rows
        self.conv = ops.CausalConv1d(1280, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(16))
        self.D = nn.Parameter(torch.empty(16))
        self.dt_bias = nn.Parameter(torch.empty(16))
        self.norm = ops.GatedRMSNorm(1024, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(1024, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(1280, 4), ssm=(16, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((1024, 1280, 16), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((1024, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias).clamp(0.001, float("inf"))
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (16, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=128).flatten(-2)
        return self.out_proj(self.norm(y, z))


class Mamba(nn.Module):
    """x += norm >> ssm: mamba2(heads=128, groups=8, chunk=128, dt_limit=(0.001, inf),
    norm=gated_rmsnorm(groups=8))
    """

    INIT = {"norm.weight": ones()}
    SHARDS = {"norm.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.ssm = MambaSsm()

    def forward(self, x, ctx, state):
        return x + ctx.tp.reduce_scatter(self.ssm(ctx.tp.all_gather(self.norm(x)), ctx, state.get("ssm")))


class MlpMlp(nn.Module):
    """mlp: mlp(21504, act=relu2)"""

    INIT = {"up.weight": normal(0.02), "down.weight": normal(0.002774)}
    SHARDS = {"up.weight": split(21504), "down.weight": split(21504, dim=1)}

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4096, 2688, bias=False)
        self.down = nn.Linear(2688, 4096, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())


class Mlp(nn.Module):
    """x += norm >> mlp(21504, act=relu2)"""

    INIT = {"norm.weight": ones()}
    SHARDS = {"norm.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.mlp = MlpMlp()

    def forward(self, x, ctx, state):
        return x + ctx.tp.reduce_scatter(self.mlp(ctx.tp.all_gather(self.norm(x))))


class AttentionAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.002774)}
    SHARDS = {"qkv.weight": split(4096, 1024, 1024), "out.weight": split(4096, dim=1)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 768, bias=False)  # 512 query, 128 key, 128 value rows
        self.out = nn.Linear(512, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=1, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((512, 128, 128), dim=-1)
        q, k = q.unflatten(-1, (4, 128)), k.unflatten(-1, (1, 128))
        v = v.unflatten(-1, (1, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class Attention(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=8)"""

    INIT = {"norm.weight": ones()}
    SHARDS = {"norm.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.attn = AttentionAttn()

    def forward(self, x, ctx, state):
        h = ctx.tp.reduce_scatter(self.attn(ctx.tp.all_gather(self.norm(x)), ctx, state.get("attn")))
        return x + h


class Head(nn.Module):
    """head = norm >> lm_head(131072)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}
    SHARDS = {"norm.weight": whole(), "lm_head.weight": split(131072)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.lm_head = nn.Linear(4096, 16384, bias=False)

    def forward(self, x, ctx):
        return self.lm_head(ctx.tp.all_gather(self.norm(x)))


class Model(LanguageModel):
    """nemotron_h_8b: (Mamba Mlp Mamba Mlp Mamba Mlp Mamba Attention Mlp Mamba Mlp) * 4 (Mamba Mlp) * 4"""

    MESH = {"pp": 4, "dp": 8, "tp": 8}

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            Mamba, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Attention, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Mlp,
            Mamba, Attention, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Attention, Mlp, Mamba, Mlp,
            Mamba, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Attention, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Mlp, Mamba, Mlp,
            Mamba, Mlp,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
        self.head = Head()

    def stage(self, layers, ctx, x=None):
        if x is None:
            x = self.embed(ctx.input_ids, ctx)
        for i in layers:
            x = self.layers[i](x, ctx, ctx.state(i))
        return x,

    def output(self, ctx, x, labels=None):
        return ctx.output_over(131072, self.head(x, ctx), labels)
