"""mamba_130m: 24 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 e526de40234d).
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
    """embed = embedding(50280, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50280, 768)

    def forward(self, ids):
        return self.embedding(ids)


class MSsm(nn.Module):
    """ssm: mamba()"""

    FP32 = ("dt_proj.bias", "A_log", "D")
    INIT = {
        "in_proj.weight": uniform(0.03608), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "x_proj.weight": uniform(0.02552), "dt_proj.weight": uniform(0.14433756729740643),
        "dt_proj.bias": dt_bias(0.001, 0.1, 0.0001), "A_log": a_log_range(), "D": ones(),
        "out_proj.weight": uniform(0.02552),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(768, 3072, bias=False)  # 1536 x, 1536 z rows
        self.conv = ops.CausalConv1d(1536, 4, bias=True)
        self.x_proj = nn.Linear(1536, 80, bias=False)  # 48 dt, 16 B, 16 C rows
        self.dt_proj = nn.Linear(48, 1536)
        self.A_log = nn.Parameter(torch.empty(1536, 16))
        self.D = nn.Parameter(torch.empty(1536))
        self.out_proj = nn.Linear(1536, 768, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(1536, 4), ssm=(1536, 16), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = self.conv(u, ctx, state, silu=True)
        dt, b, c = self.x_proj(u).split((48, 16, 16), dim=-1)
        dt = F.softplus(F.linear(dt, self.dt_proj.weight).float() + self.dt_proj.bias)
        y = ops.selective_scan(u, dt, -self.A_log.float().exp(), b, c, self.D, ctx, state)
        return self.out_proj(y * F.silu(z))


class M(nn.Module):
    """x += norm >> ssm: mamba()"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(768, eps=1e-5)
        self.ssm = MSsm()

    def forward(self, x, ctx, state):
        return x + self.ssm(self.norm(x), ctx, state.get("ssm"))


class Head(nn.Module):
    """head = norm >> lm_head(50280, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(768, eps=1e-5)
        self.lm_head = nn.Linear(768, 50280, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """mamba_130m: M * 24"""

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
