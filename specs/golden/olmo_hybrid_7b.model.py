"""olmo_hybrid_7b: 32 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 ded82dba8288).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import a_log, dt_bias, normal, ones, uniform
from hybridc.runtime.module import LanguageModel


class Embed(nn.Module):
    """embed = embedding(100352, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100352, 3840)

    def forward(self, ids):
        return self.embedding(ids)


class DeltaDelta(nn.Module):
    """delta: gated_delta_net(heads=30, key_dim=96, value_dim=192, neg_eigval=true,
    norm=gated_rmsnorm(gate_first=false))
    """

    FP32 = ("A_log", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "A_log": a_log(1.0, 16.0),
        "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(), "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(3840, 17340, bias=False)  # 2880 q, 2880 k, 5760 v, 5760 z, 30 b, 30 a rows
        self.conv = ops.CausalConv1d(11520, 4, bias=False)
        self.A_log = nn.Parameter(torch.empty(30))
        self.dt_bias = nn.Parameter(torch.empty(30))
        self.norm = ops.GatedRMSNorm(192, eps=1e-5, groups=1, gate_first=False)
        self.out_proj = nn.Linear(5760, 3840, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(11520, 4), ssm=(30, 96, 192), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, z, b, a = self.in_proj(x).split((11520, 5760, 30, 30), dim=-1)
        q, k, v = self.conv(qkv, ctx, state, silu=True).split((2880, 2880, 5760), dim=-1)
        q, k, v = q.unflatten(-1, (30, 96)), k.unflatten(-1, (30, 96)), v.unflatten(-1, (30, 192))
        g = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias)
        y = ops.gated_delta_rule(q, k, v, g, 2.0 * b.float().sigmoid(), ctx, state)
        return self.out_proj(self.norm(y, z.view_as(y)).flatten(-2))


class DeltaMlp(nn.Module):
    """mlp: swiglu(11008)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(3840, 22016, bias=False)  # 11008 gate, 11008 up rows
        self.down = nn.Linear(11008, 3840, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Delta(nn.Module):
    """x += norm >> delta: gated_delta_net(heads=30, key_dim=96, value_dim=192, neg_eigval=true,
    norm=gated_rmsnorm(gate_first=false))
    x += norm >> mlp
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(3840, eps=1e-6)
        self.delta = DeltaDelta()
        self.norm_2 = nn.RMSNorm(3840, eps=1e-6)
        self.mlp = DeltaMlp()

    def forward(self, x, ctx, state):
        x = x + self.delta(self.norm(x), ctx, state.get("delta"))
        return x + self.mlp(self.norm_2(x))


class AttnAttn(nn.Module):
    """attn: attention(heads=30, qk_norm=norm, qk_norm_over=all)"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": ones(), "k_norm.weight": ones(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(3840, 11520, bias=False)  # 3840 query, 3840 key, 3840 value rows
        self.q_norm = nn.RMSNorm(3840, eps=1e-6)
        self.k_norm = nn.RMSNorm(3840, eps=1e-6)
        self.out = nn.Linear(3840, 3840, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=30, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((3840, 3840, 3840), dim=-1)
        q, k = self.q_norm(q).unflatten(-1, (30, 128)), self.k_norm(k).unflatten(-1, (30, 128))
        v = v.unflatten(-1, (30, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class AttnMlp(nn.Module):
    """mlp: swiglu(11008)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(3840, 22016, bias=False)  # 11008 gate, 11008 up rows
        self.down = nn.Linear(11008, 3840, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Attn(nn.Module):
    """x += attn: attention(heads=30, qk_norm=norm, qk_norm_over=all) >> norm
    x += mlp >> norm
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.attn = AttnAttn()
        self.norm = nn.RMSNorm(3840, eps=1e-6)
        self.mlp = AttnMlp()
        self.norm_2 = nn.RMSNorm(3840, eps=1e-6)

    def forward(self, x, ctx, state):
        x = x + self.norm(self.attn(x, ctx, state.get("attn")))
        return x + self.norm_2(self.mlp(x))


class Head(nn.Module):
    """head = norm >> lm_head(100352)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(3840, eps=1e-6)
        self.lm_head = nn.Linear(3840, 100352, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """olmo_hybrid_7b: (Delta Delta Delta Attn) * 8"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Delta, Delta, Delta, Attn) * 8)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
