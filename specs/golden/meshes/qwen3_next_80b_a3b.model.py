"""qwen3_next_80b_a3b: 48 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 e7d3d45757ed).
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

ROPE = ops.Rope(dim=64, theta=1e7)


class Embed(nn.Module):
    """embed = embedding(151936, dim)"""

    INIT = {"embedding.weight": normal(0.02)}
    SHARDS = {"embedding.weight": split(151936)}

    def __init__(self):
        super().__init__()
        self.embedding = ops.VocabEmbedding(37984, 2048)

    def forward(self, ids, ctx):
        return ctx.tp.reduce_scatter(self.embedding(ids))


class DeltaDelta(nn.Module):
    """delta: gated_delta_net(heads=32, key_heads=16, norm=gated_rmsnorm(eps=1e-6, gate_first=false))"""

    FP32 = ("A_log", "dt_bias")
    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5), "A_log": a_log(1.0, 16.0),
        "dt_bias": dt_bias(0.001, 0.1, 0.0001), "norm.weight": ones(), "out_proj.weight": normal(0.02),
    }
    SHARDS = {
        "in_proj.weight": split(2048, 2048, 4096, 4096, 32, 32), "conv.weight": split(2048, 2048, 4096),
        "A_log": split(32), "dt_bias": split(32), "norm.weight": whole(), "out_proj.weight": split(4096, dim=1),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2048, 3088, bias=False)  # 512 q, 512 k, 1024 v, 1024 z, 8 b, 8 a rows
        self.conv = ops.CausalConv1d(2048, 4, bias=False)
        self.A_log = nn.Parameter(torch.empty(8))
        self.dt_bias = nn.Parameter(torch.empty(8))
        self.norm = ops.GatedRMSNorm(128, eps=1e-6, groups=1, gate_first=False)
        self.out_proj = nn.Linear(1024, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(2048, 4), ssm=(8, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, z, b, a = self.in_proj(x).split((2048, 1024, 8, 8), dim=-1)
        q, k, v = self.conv(qkv, ctx, state, silu=True).split((512, 512, 1024), dim=-1)
        q, k, v = q.unflatten(-1, (4, 128)), k.unflatten(-1, (4, 128)), v.unflatten(-1, (8, 128))
        g = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias)
        y = ops.gated_delta_rule(q, k, v, g, b.float().sigmoid(), ctx, state)
        return self.out_proj(self.norm(y, z.view_as(y)).flatten(-2))


class DeltaMoeShared(nn.Module):
    """shared of DeltaMoe"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}
    SHARDS = {"gate_up.weight": split(512, 512), "down.weight": split(512, dim=1)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 256, bias=False)  # 128 gate, 128 up rows
        self.down = nn.Linear(128, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class DeltaMoe(nn.Module):
    """moe: moe(experts=512, hidden=512, top_k=10, shared=512, shared_gate=true)"""

    FP32 = ("router.weight",)
    INIT = {
        "router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02),
        "shared_gate.weight": normal(0.02),
    }
    SHARDS = {
        "router.weight": whole(), "experts.gate_up": split(512, 512, dim=1), "experts.down": split(512, dim=2),
        "shared_gate.weight": whole(),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2048, 512, bias=False)
        self.experts = ops.Experts(512, 2048, 128, act="silu", gated=True)
        self.shared_gate = nn.Linear(2048, 1, bias=False)
        self.shared = DeltaMoeShared()

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 10, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=512, aux_coef=0.0, z_coef=0.0)
        shared = self.shared_gate(x).sigmoid() * self.shared(x)
        return self.experts(x, weights.to(x.dtype), ids) + shared


class Delta(nn.Module):
    """x += norm >> delta: gated_delta_net(heads=32, key_heads=16, norm=gated_rmsnorm(eps=1e-6, gate_first=false))
    x += norm >> moe
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros()}
    SHARDS = {"norm.weight": whole(), "norm_2.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2048, eps=1e-6)
        self.delta = DeltaDelta()
        self.norm_2 = ops.ZeroCenteredRMSNorm(2048, eps=1e-6)
        self.moe = DeltaMoe()

    def forward(self, x, ctx, state):
        h = ctx.tp.reduce_scatter(self.delta(ctx.tp.all_gather(self.norm(x)), ctx, state.get("delta")))
        x = x + h
        return x + ctx.tp.reduce_scatter(self.moe(ctx.tp.all_gather(self.norm_2(x)), ctx))


class AttnAttn(nn.Module):
    """attn: attention(heads=16, kv_heads=2, head_dim=256, qk_norm=norm, rope=rope(theta=1e7, partial=0.25),
    gated=true)
    """

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": zeros(), "k_norm.weight": zeros(), "out.weight": normal(0.02),
    }
    SHARDS = {
        "qkv.weight": split(4096, 4096, 512, 512, copies=(1, 1, 2, 2)), "q_norm.weight": whole(),
        "k_norm.weight": whole(), "out.weight": split(4096, dim=1),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 2560, bias=False)  # 1024 query, 1024 gate, 256 key, 256 value rows
        self.q_norm = ops.ZeroCenteredRMSNorm(256, eps=1e-6)
        self.k_norm = ops.ZeroCenteredRMSNorm(256, eps=1e-6)
        self.out = nn.Linear(1024, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=1, head_dim=256, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, gate, k, v = self.qkv(x).split((1024, 1024, 256, 256), dim=-1)
        q, k = ops.rope(self.q_norm(q.unflatten(-1, (4, 256))), self.k_norm(k.unflatten(-1, (1, 256))), ctx.rope(ROPE))
        v = v.unflatten(-1, (1, 256))
        y = ops.attention(q, k, v, ctx, state, scale=0.0625)
        return self.out(y.flatten(-2) * gate.sigmoid())


class AttnMoeShared(nn.Module):
    """shared of AttnMoe"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}
    SHARDS = {"gate_up.weight": split(512, 512), "down.weight": split(512, dim=1)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 256, bias=False)  # 128 gate, 128 up rows
        self.down = nn.Linear(128, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class AttnMoe(nn.Module):
    """moe: moe(experts=512, hidden=512, top_k=10, shared=512, shared_gate=true)"""

    FP32 = ("router.weight",)
    INIT = {
        "router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02),
        "shared_gate.weight": normal(0.02),
    }
    SHARDS = {
        "router.weight": whole(), "experts.gate_up": split(512, 512, dim=1), "experts.down": split(512, dim=2),
        "shared_gate.weight": whole(),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2048, 512, bias=False)
        self.experts = ops.Experts(512, 2048, 128, act="silu", gated=True)
        self.shared_gate = nn.Linear(2048, 1, bias=False)
        self.shared = AttnMoeShared()

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 10, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=512, aux_coef=0.0, z_coef=0.0)
        shared = self.shared_gate(x).sigmoid() * self.shared(x)
        return self.experts(x, weights.to(x.dtype), ids) + shared


class Attn(nn.Module):
    """x += norm >> attn: attention(heads=16, kv_heads=2, head_dim=256, qk_norm=norm, rope=rope(theta=1e7,
    partial=0.25), gated=true)
    x += norm >> moe
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros()}
    SHARDS = {"norm.weight": whole(), "norm_2.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2048, eps=1e-6)
        self.attn = AttnAttn()
        self.norm_2 = ops.ZeroCenteredRMSNorm(2048, eps=1e-6)
        self.moe = AttnMoe()

    def forward(self, x, ctx, state):
        h = ctx.tp.reduce_scatter(self.attn(ctx.tp.all_gather(self.norm(x)), ctx, state.get("attn")))
        x = x + h
        return x + ctx.tp.reduce_scatter(self.moe(ctx.tp.all_gather(self.norm_2(x)), ctx))


class Head(nn.Module):
    """head = norm >> lm_head(151936)"""

    INIT = {"norm.weight": zeros(), "lm_head.weight": normal(0.02)}
    SHARDS = {"norm.weight": whole(), "lm_head.weight": split(151936)}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2048, eps=1e-6)
        self.lm_head = nn.Linear(2048, 37984, bias=False)

    def forward(self, x, ctx):
        return self.lm_head(ctx.tp.all_gather(self.norm(x)))


class Model(LanguageModel):
    """qwen3_next_80b_a3b: (Delta Delta Delta Attn) * 12"""

    MESH = {"tp": 4}

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Delta, Delta, Delta, Attn) * 12)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(
            input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache, mesh=self.mesh
        )
        x = self.embed(ctx.input_ids, ctx)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output_over(151936, self.head(x, ctx), labels)
