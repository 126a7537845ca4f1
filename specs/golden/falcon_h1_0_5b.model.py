"""falcon_h1_0_5b: 36 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 d21eb54e8e35).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log, dt_bias, normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=1e11)


class Embed(nn.Module):
    """embed = embedding(32784, dim, scale=5.656854249492381)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32784, 1024)

    def forward(self, ids):
        return 5.656854249492381 * self.embedding(ids)


class HAttn(nn.Module):
    """attn: attention(heads=8, kv_heads=2, head_dim=64, rope=rope(theta=1e11), key_scale=0.390625)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1024, 768, bias=False)  # 512 query, 128 key, 128 value rows
        self.out = nn.Linear(512, 1024, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=2, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((512, 128, 128), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (8, 64)), 0.390625 * k.unflatten(-1, (2, 64)), ctx.rope(ROPE))
        v = v.unflatten(-1, (2, 64))
        y = ops.attention(q, k, v, ctx, state, scale=0.125)
        return self.out(y.flatten(-2))


class HSsm(nn.Module):
    """ssm: mamba2(heads=24, head_dim=64, state=128, chunk=128, in_scales=factors)"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001),
        "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(1024, 3352, bias=False)  # 1536 z, 1536 x, 128 B, 128 C, 24 dt rows
        self.conv = ops.CausalConv1d(1792, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(24))
        self.D = nn.Parameter(torch.empty(24))
        self.dt_bias = nn.Parameter(torch.empty(24))
        self.out_proj = nn.Linear(1536, 1024, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(1792, 4), ssm=(24, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, u, b, c, dt = self.in_proj(x).split((1536, 1536, 128, 128, 24), dim=-1)
        xbc = torch.cat((0.25 * u, 0.3535533905932738 * b, 0.5 * c), dim=-1)
        z = 0.3535533905932738 * z
        dt = 0.3535533905932738 * dt
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((1536, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias)
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (24, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=128).flatten(-2)
        return self.out_proj(y * F.silu(z))


class HMlp(nn.Module):
    """mlp: swiglu(2048, gate_scale=0.8838834764831844)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(1024, 4096, bias=False)  # 2048 gate, 2048 up rows
        self.down = nn.Linear(2048, 1024, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(0.8838834764831844 * gate) * up)


class H(nn.Module):
    """x += norm >> (attn: attention(heads=8, kv_heads=2, head_dim=64, rope=rope(theta=1e11), key_scale=0.390625)
    >> scale(0.9375) | scale(1.25) >> ssm: mamba2(heads=24, head_dim=64, state=128, chunk=128,
    in_scales=factors) >> scale(0.23570226039551587))
    x += norm >> mlp: swiglu(2048, gate_scale=0.8838834764831844) >> scale(0.5859375)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1024, eps=1e-5)
        self.attn = HAttn()
        self.ssm = HSsm()
        self.norm_2 = nn.RMSNorm(1024, eps=1e-5)
        self.mlp = HMlp()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 0.23570226039551587 * self.ssm(1.25 * h, ctx, state.get("ssm"))
        x = x + (0.9375 * self.attn(h, ctx, state.get("attn")) + h_2)
        return x + 0.5859375 * self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(32784, scale=0.0390625)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1024, eps=1e-5)
        self.lm_head = nn.Linear(1024, 32784, bias=False)

    def forward(self, x):
        return 0.0390625 * self.lm_head(self.norm(x))


class Model(LanguageModel):
    """falcon_h1_0_5b: H * 36"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (H,) * 36)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
