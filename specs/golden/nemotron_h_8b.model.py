"""nemotron_h_8b: 52 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 aee2b13a2275).
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
    """embed = embedding(131072, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(131072, 4096)

    def forward(self, ids):
        return self.embedding(ids)


class MambaSsm(nn.Module):
    """ssm: mamba2(heads=128, groups=8, chunk=128, dt_limit=(0.001, inf), norm=gated_rmsnorm(groups=8))"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(),
        "out_proj.weight": normal(0.002774),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(4096, 18560, bias=False)  # 8192 z, 8192 x, 1024 B, 1024 C, 128 dt rows
        self.conv = ops.CausalConv1d(10240, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(128))
        self.D = nn.Parameter(torch.empty(128))
        self.dt_bias = nn.Parameter(torch.empty(128))
        self.norm = ops.GatedRMSNorm(8192, eps=1e-5, groups=8, gate_first=True)
        self.out_proj = nn.Linear(8192, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(10240, 4), ssm=(128, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((8192, 10240, 128), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((8192, 1024, 1024), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias).clamp(0.001, float("inf"))
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (128, 64)), b.unflatten(-1, (8, 128)), c.unflatten(-1, (8, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=128).flatten(-2)
        return self.out_proj(self.norm(y, z))


class Mamba(nn.Module):
    """x += norm >> ssm: mamba2(heads=128, groups=8, chunk=128, dt_limit=(0.001, inf),
    norm=gated_rmsnorm(groups=8))
    """

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.ssm = MambaSsm()

    def forward(self, x, ctx, state):
        return x + self.ssm(self.norm(x), ctx, state.get("ssm"))


class MlpMlp(nn.Module):
    """mlp: mlp(21504, act=relu2)"""

    INIT = {"up.weight": normal(0.02), "down.weight": normal(0.002774)}

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4096, 21504, bias=False)
        self.down = nn.Linear(21504, 4096, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())


class Mlp(nn.Module):
    """x += norm >> mlp(21504, act=relu2)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.mlp = MlpMlp()

    def forward(self, x, ctx, state):
        return x + self.mlp(self.norm(x))


class AttentionAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.002774)}

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


class Attention(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=8)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.attn = AttentionAttn()

    def forward(self, x, ctx, state):
        return x + self.attn(self.norm(x), ctx, state.get("attn"))


class Head(nn.Module):
    """head = norm >> lm_head(131072)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.lm_head = nn.Linear(4096, 131072, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """nemotron_h_8b: (Mamba Mlp Mamba Mlp Mamba Mlp Mamba Attention Mlp Mamba Mlp) * 4 (Mamba Mlp) * 4"""

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

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
