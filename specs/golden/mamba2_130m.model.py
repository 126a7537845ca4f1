"""mamba2_130m: 24 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 ca2fefacde23).
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
    """embed = embedding(50288, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50288, 768)

    def forward(self, ids):
        return self.embedding(ids)


class MSsm(nn.Module):
    """ssm: mamba2(heads=24, head_dim=64, state=128, chunk=256, norm=gated_rmsnorm(eps=1e-5))"""

    FP32 = ("A_log", "D", "dt_bias")
    INIT = {
        "in_proj.weight": uniform(0.03608), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "A_log": a_log(1.0, 16.0), "D": ones(), "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(),
        "out_proj.weight": uniform(0.005208),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(768, 3352, bias=False)  # 1536 z, 1536 x, 128 B, 128 C, 24 dt rows
        self.conv = ops.CausalConv1d(1792, 4, bias=True)
        self.A_log = nn.Parameter(torch.empty(24))
        self.D = nn.Parameter(torch.empty(24))
        self.dt_bias = nn.Parameter(torch.empty(24))
        self.norm = ops.GatedRMSNorm(1536, eps=1e-5, groups=1, gate_first=True)
        self.out_proj = nn.Linear(1536, 768, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(1792, 4), ssm=(24, 64, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        z, xbc, dt = self.in_proj(x).split((1536, 1792, 24), dim=-1)
        u, b, c = self.conv(xbc, ctx, state, silu=True).split((1536, 128, 128), dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias)
        a = -self.A_log.float().exp()
        u, b, c = u.unflatten(-1, (24, 64)), b.unflatten(-1, (1, 128)), c.unflatten(-1, (1, 128))
        y = ops.ssd(u, dt, a, b, c, self.D, ctx, state, chunk=256).flatten(-2)
        return self.out_proj(self.norm(y, z))


class M(nn.Module):
    """x += norm >> ssm: mamba2(heads=24, head_dim=64, state=128, chunk=256, norm=gated_rmsnorm(eps=1e-5))"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(768, eps=1e-5)
        self.ssm = MSsm()

    def forward(self, x, ctx, state):
        return x + self.ssm(self.norm(x), ctx, state.get("ssm"))


class Head(nn.Module):
    """head = norm >> lm_head(50288, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(768, eps=1e-5)
        self.lm_head = nn.Linear(768, 50288, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """mamba2_130m: M * 24"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (M,) * 24)
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
