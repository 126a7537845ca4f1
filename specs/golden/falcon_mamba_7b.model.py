"""falcon_mamba_7b: 64 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 45eb8c48658c).
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
    """embed = embedding(65024, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(65024, 4096)

    def forward(self, ids):
        return self.embedding(ids)


class MSsm(nn.Module):
    """ssm: mamba(norm=rmsnorm(eps=1e-6, affine=false))"""

    FP32 = ("dt_proj.bias", "A_log", "D")
    INIT = {
        "in_proj.weight": uniform(0.01562), "conv.weight": uniform(0.5), "conv.bias": zeros(),
        "x_proj.weight": uniform(0.01105), "dt_proj.weight": uniform(0.0625),
        "dt_proj.bias": dt_bias(0.001, 0.1, 0.0001), "A_log": a_log_range(), "D": ones(),
        "out_proj.weight": uniform(0.01105),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(4096, 16384, bias=False)  # 8192 x, 8192 z rows
        self.conv = ops.CausalConv1d(8192, 4, bias=True)
        self.x_proj = nn.Linear(8192, 288, bias=False)  # 256 dt, 16 B, 16 C rows
        self.dt_norm = nn.RMSNorm(256, eps=1e-6, elementwise_affine=False)
        self.B_norm = nn.RMSNorm(16, eps=1e-6, elementwise_affine=False)
        self.C_norm = nn.RMSNorm(16, eps=1e-6, elementwise_affine=False)
        self.dt_proj = nn.Linear(256, 8192)
        self.A_log = nn.Parameter(torch.empty(8192, 16))
        self.D = nn.Parameter(torch.empty(8192))
        self.out_proj = nn.Linear(8192, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(8192, 4), ssm=(8192, 16), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = self.conv(u, ctx, state, silu=True)
        dt, b, c = self.x_proj(u).split((256, 16, 16), dim=-1)
        dt, b, c = self.dt_norm(dt), self.B_norm(b), self.C_norm(c)
        dt = F.softplus(F.linear(dt, self.dt_proj.weight).float() + self.dt_proj.bias)
        y = ops.selective_scan(u, dt, -self.A_log.float().exp(), b, c, self.D, ctx, state)
        return self.out_proj(y * F.silu(z))


class M(nn.Module):
    """x += norm >> ssm: mamba(norm=rmsnorm(eps=1e-6, affine=false))"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.ssm = MSsm()

    def forward(self, x, ctx, state):
        return x + self.ssm(self.norm(x), ctx, state.get("ssm"))


class Head(nn.Module):
    """head = norm >> lm_head(65024)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": uniform(0.01562)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.lm_head = nn.Linear(4096, 65024, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """falcon_mamba_7b: M * 64"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (M,) * 64)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
