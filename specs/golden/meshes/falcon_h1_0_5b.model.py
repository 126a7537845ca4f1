"""falcon_h1_0_5b: 36 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 6db2dca0f9fe).
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

ROPE = ops.Rope(dim=64, theta=1e11)


class Embed(nn.Module):
    """embed = embedding(32784, dim, scale=5.656854249492381)"""

    INIT = {"embedding.weight": normal(0.02)}
    SHARDS = {"embedding.weight": split(32784)}

    def __init__(self):
        super().__init__()
        self.embedding = ops.VocabEmbedding(16392, 1024)

    def forward(self, ids, ctx):
        return ctx.tp.reduce_scatter(5.656854249492381 * self.embedding(ids))


class HAttn(nn.Module):
    """attn: attention(heads=8, kv_heads=2, head_dim=64, rope=rope(theta=1e11), key_scale=0.390625)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}
    SHARDS = {"qkv.weight": split(512, 128, 128), "out.weight": split(512, dim=1)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1024, 384, bias=False)  # 256 query, 64 key, 64 value rows
        self.out = nn.Linear(256, 1024, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=1, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((256, 64, 64), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (4, 64)), 0.390625 * k.unflatten(-1, (1, 64)), ctx.rope(ROPE))
        v = v.unflatten(-1, (1, 64))
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
    SHARDS = {
        "in_proj.weight": split(1536, 1536, 128, 128, 24, copies=(1, 1, 2, 2, 1)),
        "conv.weight": split(1536, 128, 128, copies=(1, 2, 2)),
        "conv.bias": split(1536, 128, 128, copies=(1, 2, 2)), "A_log": split(24), "D": split(24),
        "dt_bias": split(24), "out_proj.weight": split(1536, dim=1),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(1024, 1804, bias=False)  # 768 z, 768 x, 128 B, 128 C, 12 dt rows
        self.conv = ops.CausalConv1d(1024, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(12))
        self.D = nn.Parameter(torch.empty(12))
        self.dt_bias = nn.Parameter(torch.empty(12))
        self.out_proj = nn.Linear(768, 1024, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(1024, 4), ssm=(12, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, u, b, c, dt = self.in_proj(x).split((768, 768, 128, 128, 12), dim=-1)
        xbc = torch.cat((0.25 * u, 0.3535533905932738 * b, 0.5 * c), dim=-1)
        z = 0.3535533905932738 * z
        dt = 0.3535533905932738 * dt
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((768, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias)
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (12, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=128).flatten(-2)
        return self.out_proj(y * F.silu(z))


class HMlp(nn.Module):
    """mlp: swiglu(2048, gate_scale=0.8838834764831844)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}
    SHARDS = {"gate_up.weight": split(2048, 2048), "down.weight": split(2048, dim=1)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(1024, 2048, bias=False)  # 1024 gate, 1024 up rows
        self.down = nn.Linear(1024, 1024, bias=False)

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
    SHARDS = {"norm.weight": whole(), "norm_2.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1024, eps=1e-5)
        self.attn = HAttn()
        self.ssm = HSsm()
        self.norm_2 = nn.RMSNorm(1024, eps=1e-5)
        self.mlp = HMlp()

    def forward(self, x, ctx, state):
        h = ctx.tp.all_gather(self.norm(x))
        h_2 = 0.23570226039551587 * self.ssm(1.25 * h, ctx, state.get("ssm"))
        x = x + ctx.tp.reduce_scatter(0.9375 * self.attn(h, ctx, state.get("attn")) + h_2)
        return x + 0.5859375 * ctx.tp.reduce_scatter(self.mlp(ctx.tp.all_gather(self.norm_2(x))))


class Head(nn.Module):
    """head = norm >> lm_head(32784, scale=0.0390625)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}
    SHARDS = {"norm.weight": whole(), "lm_head.weight": split(32784)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1024, eps=1e-5)
        self.lm_head = nn.Linear(1024, 16392, bias=False)

    def forward(self, x, ctx):
        return 0.0390625 * self.lm_head(ctx.tp.all_gather(self.norm(x)))


class Model(LanguageModel):
    """falcon_h1_0_5b: H * 36"""

    MESH = {"dp": 2, "tp": 2}

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (H,) * 36)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(
            input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache, mesh=self.mesh
        )
        x = self.embed(ctx.input_ids, ctx)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output_over(32784, self.head(x, ctx), labels)
