"""gpt_oss_20b: 24 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 bce71e0bd424).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=150000.0, kind="yarn", factor=32.0, original_max=4096, truncate=False)


class Embed(nn.Module):
    """embed = embedding(201088, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(201088, 2880)

    def forward(self, ids):
        return self.embedding(ids)


class LocalAttn(nn.Module):
    """attn: attention(heads=64, kv_heads=8, head_dim=64, bias=true, out_bias=true, sinks=true, rope=positions,
    window=128)
    """

    INIT = {
        "qkv.weight": normal(0.02), "qkv.bias": zeros(), "sinks": normal(0.02), "out.weight": normal(0.02),
        "out.bias": zeros(),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2880, 5120, bias=True)  # 4096 query, 512 key, 512 value rows
        self.sinks = nn.Parameter(torch.empty(64))
        self.out = nn.Linear(4096, 2880, bias=True)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((4096, 512, 512), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (64, 64)), k.unflatten(-1, (8, 64)), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 64))
        y = ops.attention(q, k, v, ctx, state, scale=0.125, window=128, sinks=self.sinks)
        return self.out(y.flatten(-2))


class LocalMoe(nn.Module):
    """moe: moe(experts=32, hidden=2880, top_k=4, router_bias=true, bias=true, beta=1.702, limit=7, up_offset=1)"""

    FP32 = ("router.weight", "router.bias")
    INIT = {
        "router.weight": normal(0.02), "router.bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02), "experts.gate_up_bias": zeros(), "experts.down_bias": zeros(),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2880, 32, bias=True)
        self.experts = ops.Experts(
            32, 2880, 2880, act="silu", gated=True, bias=True, beta=1.702, limit=7.0, up_offset=1.0
        )

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight, self.router.bias)
        weights, ids = ops.softmax_topk(logits, 4, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Local(nn.Module):
    """x += norm >> attn: attention(heads=64, kv_heads=8, head_dim=64, bias=true, out_bias=true, sinks=true,
    rope=positions, window=128)
    x += norm >> moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2880, eps=1e-5)
        self.attn = LocalAttn()
        self.norm_2 = nn.RMSNorm(2880, eps=1e-5)
        self.moe = LocalMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class GlobalAttn(nn.Module):
    """attn: attention(heads=64, kv_heads=8, head_dim=64, bias=true, out_bias=true, sinks=true, rope=positions)"""

    INIT = {
        "qkv.weight": normal(0.02), "qkv.bias": zeros(), "sinks": normal(0.02), "out.weight": normal(0.02),
        "out.bias": zeros(),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2880, 5120, bias=True)  # 4096 query, 512 key, 512 value rows
        self.sinks = nn.Parameter(torch.empty(64))
        self.out = nn.Linear(4096, 2880, bias=True)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((4096, 512, 512), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (64, 64)), k.unflatten(-1, (8, 64)), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 64))
        y = ops.attention(q, k, v, ctx, state, scale=0.125, sinks=self.sinks)
        return self.out(y.flatten(-2))


class GlobalMoe(nn.Module):
    """moe: moe(experts=32, hidden=2880, top_k=4, router_bias=true, bias=true, beta=1.702, limit=7, up_offset=1)"""

    FP32 = ("router.weight", "router.bias")
    INIT = {
        "router.weight": normal(0.02), "router.bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02), "experts.gate_up_bias": zeros(), "experts.down_bias": zeros(),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2880, 32, bias=True)
        self.experts = ops.Experts(
            32, 2880, 2880, act="silu", gated=True, bias=True, beta=1.702, limit=7.0, up_offset=1.0
        )

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight, self.router.bias)
        weights, ids = ops.softmax_topk(logits, 4, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Global(nn.Module):
    """x += norm >> attn: attention(heads=64, kv_heads=8, head_dim=64, bias=true, out_bias=true, sinks=true,
    rope=positions)
    x += norm >> moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2880, eps=1e-5)
        self.attn = GlobalAttn()
        self.norm_2 = nn.RMSNorm(2880, eps=1e-5)
        self.moe = GlobalMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(201088)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2880, eps=1e-5)
        self.lm_head = nn.Linear(2880, 201088, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """gpt_oss_20b: (Local Global) * 12"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Local, Global) * 12)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
