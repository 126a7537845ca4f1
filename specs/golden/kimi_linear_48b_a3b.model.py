"""kimi_linear_48b_a3b: 27 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 20ad416bb21e).
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
    """embed = embedding(163840, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(163840, 2304)

    def forward(self, ids):
        return self.embedding(ids)


class KdaDenseKda(nn.Module):
    """kda: kda(heads=32, gate_rank=128, norm=gated_rmsnorm(gate_first=false, act=sigmoid))"""

    FP32 = ("A_log", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "f_up.weight": normal(0.02), "z_up.weight": normal(0.02),
        "conv.weight": uniform(0.5), "A_log": a_log(1.0, 16.0), "dt_bias": dt_bias(0.001, 0.1, 0.0001),
        "norm.weight": ones(), "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2304, 12576, bias=False)  # 4096 q, 4096 k, 4096 v, 32 b, 128 f, 128 z rows
        self.f_up = nn.Linear(128, 4096, bias=False)
        self.z_up = nn.Linear(128, 4096, bias=False)
        self.conv = ops.CausalConv1d(12288, 4, bias=False)
        self.A_log = nn.Parameter(torch.empty(32))
        self.dt_bias = nn.Parameter(torch.empty(4096))
        self.norm = ops.GatedRMSNorm(128, eps=1e-5, groups=1, gate_first=False, act="sigmoid")
        self.out_proj = nn.Linear(4096, 2304, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(12288, 4), ssm=(32, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, b, f, z = self.in_proj(x).split((12288, 32, 128, 128), dim=-1)
        q, k, v = (t.unflatten(-1, (32, 128)) for t in self.conv(qkv, ctx, state, silu=True).chunk(3, dim=-1))
        f = (self.f_up(f).float() + self.dt_bias).unflatten(-1, (32, 128))
        y = ops.gated_delta_rule(
            q, k, v, -self.A_log.float().exp()[:, None] * F.softplus(f), b.float().sigmoid(), ctx, state
        )
        return self.out_proj(self.norm(y, self.z_up(z).view_as(y)).flatten(-2))


class KdaDenseMlp(nn.Module):
    """mlp: swiglu(9216)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2304, 18432, bias=False)  # 9216 gate, 9216 up rows
        self.down = nn.Linear(9216, 2304, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class KdaDense(nn.Module):
    """x += norm >> kda
    x += norm >> mlp: swiglu(9216)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2304, eps=1e-5)
        self.kda = KdaDenseKda()
        self.norm_2 = nn.RMSNorm(2304, eps=1e-5)
        self.mlp = KdaDenseMlp()

    def forward(self, x, ctx, state):
        x = x + self.kda(self.norm(x), ctx, state.get("kda"))
        return x + self.mlp(self.norm_2(x))


class KdaSparseKda(nn.Module):
    """kda: kda(heads=32, gate_rank=128, norm=gated_rmsnorm(gate_first=false, act=sigmoid))"""

    FP32 = ("A_log", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "f_up.weight": normal(0.02), "z_up.weight": normal(0.02),
        "conv.weight": uniform(0.5), "A_log": a_log(1.0, 16.0), "dt_bias": dt_bias(0.001, 0.1, 0.0001),
        "norm.weight": ones(), "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2304, 12576, bias=False)  # 4096 q, 4096 k, 4096 v, 32 b, 128 f, 128 z rows
        self.f_up = nn.Linear(128, 4096, bias=False)
        self.z_up = nn.Linear(128, 4096, bias=False)
        self.conv = ops.CausalConv1d(12288, 4, bias=False)
        self.A_log = nn.Parameter(torch.empty(32))
        self.dt_bias = nn.Parameter(torch.empty(4096))
        self.norm = ops.GatedRMSNorm(128, eps=1e-5, groups=1, gate_first=False, act="sigmoid")
        self.out_proj = nn.Linear(4096, 2304, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(12288, 4), ssm=(32, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, b, f, z = self.in_proj(x).split((12288, 32, 128, 128), dim=-1)
        q, k, v = (t.unflatten(-1, (32, 128)) for t in self.conv(qkv, ctx, state, silu=True).chunk(3, dim=-1))
        f = (self.f_up(f).float() + self.dt_bias).unflatten(-1, (32, 128))
        y = ops.gated_delta_rule(
            q, k, v, -self.A_log.float().exp()[:, None] * F.softplus(f), b.float().sigmoid(), ctx, state
        )
        return self.out_proj(self.norm(y, self.z_up(z).view_as(y)).flatten(-2))


class KdaSparseMoeShared(nn.Module):
    """shared of KdaSparseMoe"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2304, 2048, bias=False)  # 1024 gate, 1024 up rows
        self.down = nn.Linear(1024, 2304, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class KdaSparseMoe(nn.Module):
    """moe: moe(experts=256, hidden=1024, top_k=8, shared=1024, scores=sigmoid, correction_bias=true,
    renormalize_eps=1e-20, scaling=2.446)
    """

    FP32 = ("router.weight", "correction_bias")
    INIT = {
        "router.weight": normal(0.02), "correction_bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2304, 256, bias=False)
        self.correction_bias = nn.Parameter(torch.empty(256), requires_grad=False)
        self.experts = ops.Experts(256, 2304, 1024, act="silu", gated=True)
        self.shared = KdaSparseMoeShared()

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.sigmoid_topk(
            logits, 8, renormalize=True, eps=1e-20, bias=self.correction_bias, scaling=2.446
        )
        ctx.router_stats("moe", logits, ids, experts=256, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids) + self.shared(x)


class KdaSparse(nn.Module):
    """x += norm >> kda
    x += norm >> moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2304, eps=1e-5)
        self.kda = KdaSparseKda()
        self.norm_2 = nn.RMSNorm(2304, eps=1e-5)
        self.moe = KdaSparseMoe()

    def forward(self, x, ctx, state):
        x = x + self.kda(self.norm(x), ctx, state.get("kda"))
        return x + self.moe(self.norm_2(x), ctx)


class AttnSparseAttn(nn.Module):
    """attn: mla(heads=32, kv_rank=512, nope_dim=128, rope_dim=64, norm=rmsnorm(eps=1e-6))"""

    INIT = {
        "q.weight": normal(0.02), "kv_down.weight": normal(0.02), "kv_up.weight": normal(0.02),
        "out.weight": normal(0.02), "kv_norm.weight": ones(),
    }

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(2304, 6144, bias=False)
        self.kv_down = nn.Linear(2304, 576, bias=False)
        self.kv_up = nn.Linear(512, 8192, bias=False)
        self.out = nn.Linear(4096, 2304, bias=False)
        self.kv_norm = nn.RMSNorm(512, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.LatentState(batch, max_len, rank=512, rope_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q = self.q(x).unflatten(-1, (32, 192))
        latent, k_shared = self.kv_down(x).split((512, 64), dim=-1)
        latent = self.kv_norm(latent)
        k_shared = k_shared.unsqueeze(-2)  # one head's, for all
        y = ops.latent_attention(
            q, latent, k_shared, self.kv_up.weight, ctx, state,
            value_dim=128, scale=0.07216878364870322,
        )
        return self.out(y.flatten(-2))


class AttnSparseMoeShared(nn.Module):
    """shared of AttnSparseMoe"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2304, 2048, bias=False)  # 1024 gate, 1024 up rows
        self.down = nn.Linear(1024, 2304, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class AttnSparseMoe(nn.Module):
    """moe: moe(experts=256, hidden=1024, top_k=8, shared=1024, scores=sigmoid, correction_bias=true,
    renormalize_eps=1e-20, scaling=2.446)
    """

    FP32 = ("router.weight", "correction_bias")
    INIT = {
        "router.weight": normal(0.02), "correction_bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2304, 256, bias=False)
        self.correction_bias = nn.Parameter(torch.empty(256), requires_grad=False)
        self.experts = ops.Experts(256, 2304, 1024, act="silu", gated=True)
        self.shared = AttnSparseMoeShared()

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.sigmoid_topk(
            logits, 8, renormalize=True, eps=1e-20, bias=self.correction_bias, scaling=2.446
        )
        ctx.router_stats("moe", logits, ids, experts=256, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids) + self.shared(x)


class AttnSparse(nn.Module):
    """x += norm >> attn: mla(heads=32, kv_rank=512, nope_dim=128, rope_dim=64, norm=rmsnorm(eps=1e-6))
    x += norm >> moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2304, eps=1e-5)
        self.attn = AttnSparseAttn()
        self.norm_2 = nn.RMSNorm(2304, eps=1e-5)
        self.moe = AttnSparseMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(163840)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2304, eps=1e-5)
        self.lm_head = nn.Linear(2304, 163840, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """kimi_linear_48b_a3b: KdaDense (KdaSparse KdaSparse AttnSparse KdaSparse) * 6 KdaSparse AttnSparse"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            KdaDense, KdaSparse, KdaSparse, AttnSparse, KdaSparse, KdaSparse, KdaSparse, AttnSparse, KdaSparse,
            KdaSparse, KdaSparse, AttnSparse, KdaSparse, KdaSparse, KdaSparse, AttnSparse, KdaSparse, KdaSparse,
            KdaSparse, AttnSparse, KdaSparse, KdaSparse, KdaSparse, AttnSparse, KdaSparse, KdaSparse, AttnSparse,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
