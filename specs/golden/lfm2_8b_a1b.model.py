"""lfm2_8b_a1b: 24 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 4a26adcd0434).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones, uniform, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=1e6)


class Embed(nn.Module):
    """embed = embedding(65536, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(65536, 2048)

    def forward(self, ids):
        return self.embedding(ids)


class ConvDenseConv(nn.Module):
    """conv: short_conv()"""

    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5773502691896257), "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2048, 6144, bias=False)  # 2048 B, 2048 C, 2048 x rows
        self.conv = ops.CausalConv1d(2048, 3, bias=False)
        self.out_proj = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ConvState(batch, conv=(2048, 3), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        b, c, x = self.in_proj(x).chunk(3, dim=-1)
        return self.out_proj(c * self.conv(b * x, ctx, state))


class ConvDenseMlp(nn.Module):
    """mlp: swiglu(7168)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 14336, bias=False)  # 7168 gate, 7168 up rows
        self.down = nn.Linear(7168, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class ConvDense(nn.Module):
    """x += norm >> conv
    x += norm >> mlp: swiglu(7168)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.conv = ConvDenseConv()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-5)
        self.mlp = ConvDenseMlp()

    def forward(self, x, ctx, state):
        x = x + self.conv(self.norm(x), ctx, state.get("conv"))
        return x + self.mlp(self.norm_2(x))


class AttnSparseAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8, qk_norm=norm, rope=rope(theta=1e6))"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": ones(), "k_norm.weight": ones(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 3072, bias=False)  # 2048 query, 512 key, 512 value rows
        self.q_norm = nn.RMSNorm(64, eps=1e-5)
        self.k_norm = nn.RMSNorm(64, eps=1e-5)
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 512, 512), dim=-1)
        q, k = ops.rope(self.q_norm(q.unflatten(-1, (32, 64))), self.k_norm(k.unflatten(-1, (8, 64))), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 64))
        y = ops.attention(q, k, v, ctx, state, scale=0.125)
        return self.out(y.flatten(-2))


class AttnSparseMoe(nn.Module):
    """moe: moe(experts=32, hidden=1792, top_k=4, scores=sigmoid, correction_bias=true, renormalize_eps=1e-6)"""

    FP32 = ("router.weight", "correction_bias")
    INIT = {
        "router.weight": normal(0.02), "correction_bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2048, 32, bias=False)
        self.correction_bias = nn.Parameter(torch.empty(32), requires_grad=False)
        self.experts = ops.Experts(32, 2048, 1792, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.sigmoid_topk(logits, 4, renormalize=True, eps=1e-6, bias=self.correction_bias)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class AttnSparse(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=8, qk_norm=norm, rope=rope(theta=1e6))
    x += norm >> moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.attn = AttnSparseAttn()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-5)
        self.moe = AttnSparseMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class ConvSparseConv(nn.Module):
    """conv: short_conv()"""

    INIT = {
        "in_proj.weight": normal(0.02), "conv.weight": uniform(0.5773502691896257), "out_proj.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2048, 6144, bias=False)  # 2048 B, 2048 C, 2048 x rows
        self.conv = ops.CausalConv1d(2048, 3, bias=False)
        self.out_proj = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ConvState(batch, conv=(2048, 3), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        b, c, x = self.in_proj(x).chunk(3, dim=-1)
        return self.out_proj(c * self.conv(b * x, ctx, state))


class ConvSparseMoe(nn.Module):
    """moe: moe(experts=32, hidden=1792, top_k=4, scores=sigmoid, correction_bias=true, renormalize_eps=1e-6)"""

    FP32 = ("router.weight", "correction_bias")
    INIT = {
        "router.weight": normal(0.02), "correction_bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2048, 32, bias=False)
        self.correction_bias = nn.Parameter(torch.empty(32), requires_grad=False)
        self.experts = ops.Experts(32, 2048, 1792, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.sigmoid_topk(logits, 4, renormalize=True, eps=1e-6, bias=self.correction_bias)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class ConvSparse(nn.Module):
    """x += norm >> conv
    x += norm >> moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.conv = ConvSparseConv()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-5)
        self.moe = ConvSparseMoe()

    def forward(self, x, ctx, state):
        x = x + self.conv(self.norm(x), ctx, state.get("conv"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(65536, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.lm_head = nn.Linear(2048, 65536, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """lfm2_8b_a1b: ConvDense * 2 (AttnSparse ConvSparse ConvSparse ConvSparse) * 4 (AttnSparse ConvSparse
    ConvSparse) * 2
    """

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            ConvDense, ConvDense, AttnSparse, ConvSparse, ConvSparse, ConvSparse, AttnSparse, ConvSparse, ConvSparse,
            ConvSparse, AttnSparse, ConvSparse, ConvSparse, ConvSparse, AttnSparse, ConvSparse, ConvSparse, ConvSparse,
            AttnSparse, ConvSparse, ConvSparse, AttnSparse, ConvSparse, ConvSparse,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
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
