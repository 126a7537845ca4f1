"""bamba_9b: 32 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 fb7e84e336ac).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(128256, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(128256, 4096)

    def forward(self, ids):
        return self.embedding(ids)


class MambaSsm(nn.Module):
    """ssm: mamba2(heads=128, norm=gated_rmsnorm())"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(),
        "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(4096, 16768, bias=False)  # 8192 z, 8192 x, 128 B, 128 C, 128 dt rows
        self.conv = ops.CausalConv1d(8448, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(128))
        self.D = nn.Parameter(torch.empty(128))
        self.dt_bias = nn.Parameter(torch.empty(128))
        self.norm = ops.GatedRMSNorm(8192, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(8192, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(8448, 4), ssm=(128, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((8192, 8448, 128), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((8192, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias)
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (128, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=256).flatten(-2)
        return self.out_proj(self.norm(y, z))


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
    """x += norm >> ssm: mamba2(heads=128, norm=gated_rmsnorm())
    x += norm >> mlp
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.ssm = MambaSsm()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-5)
        self.mlp = MambaMlp()

    def forward(self, x, ctx, state):
        x = x + self.ssm(self.norm(x), ctx, state.get("ssm"))
        return x + self.mlp(self.norm_2(x))


class AttentionAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8, rope=rope(partial=0.5))"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 6144, bias=False)  # 4096 query, 1024 key, 1024 value rows
        self.out = nn.Linear(4096, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((4096, 1024, 1024), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (32, 128)), k.unflatten(-1, (8, 128)), ctx.rope(ROPE))
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
    """x += norm >> attn: attention(heads=32, kv_heads=8, rope=rope(partial=0.5))
    x += norm >> mlp
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.attn = AttentionAttn()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-5)
        self.mlp = AttentionMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(128256)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.lm_head = nn.Linear(4096, 128256, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """bamba_9b: Mamba (Mamba Mamba Mamba Mamba Mamba Mamba Mamba Mamba Attention) * 3 Mamba * 4"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Attention, Mamba, Mamba, Mamba, Mamba, Mamba,
            Mamba, Mamba, Mamba, Attention, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Mamba, Attention, Mamba,
            Mamba, Mamba, Mamba,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
