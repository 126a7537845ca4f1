"""glm_4_5_air: 46 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 a5b578480ed2).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=1e6)


class Embed(nn.Module):
    """embed = embedding(151552, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(151552, 4096)

    def forward(self, ids):
        return self.embedding(ids)


class DenseAttn(nn.Module):
    """attn: attention(heads=96, kv_heads=8, head_dim=128, bias=true, rope=rope(theta=1e6, partial=0.5))"""

    INIT = {"qkv.weight": normal(0.02), "qkv.bias": zeros(), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 14336, bias=True)  # 12288 query, 1024 key, 1024 value rows
        self.out = nn.Linear(12288, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((12288, 1024, 1024), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (96, 128)), k.unflatten(-1, (8, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class DenseMlp(nn.Module):
    """mlp: swiglu(10944)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(4096, 21888, bias=False)  # 10944 gate, 10944 up rows
        self.down = nn.Linear(10944, 4096, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Dense(nn.Module):
    """x += norm >> attn
    x += norm >> mlp: swiglu(10944)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.attn = DenseAttn()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-5)
        self.mlp = DenseMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class SparseAttn(nn.Module):
    """attn: attention(heads=96, kv_heads=8, head_dim=128, bias=true, rope=rope(theta=1e6, partial=0.5))"""

    INIT = {"qkv.weight": normal(0.02), "qkv.bias": zeros(), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 14336, bias=True)  # 12288 query, 1024 key, 1024 value rows
        self.out = nn.Linear(12288, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((12288, 1024, 1024), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (96, 128)), k.unflatten(-1, (8, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class SparseMoeShared(nn.Module):
    """shared of SparseMoe"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(4096, 2816, bias=False)  # 1408 gate, 1408 up rows
        self.down = nn.Linear(1408, 4096, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class SparseMoe(nn.Module):
    """moe: moe(experts=128, hidden=1408, top_k=8, shared=1408, scores=sigmoid, correction_bias=true,
    renormalize_eps=1e-20)
    """

    FP32 = ("router.weight", "correction_bias")
    INIT = {
        "router.weight": normal(0.02), "correction_bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4096, 128, bias=False)
        self.correction_bias = nn.Parameter(torch.empty(128), requires_grad=False)
        self.experts = ops.Experts(128, 4096, 1408, act="silu", gated=True)
        self.shared = SparseMoeShared()

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.sigmoid_topk(logits, 8, renormalize=True, eps=1e-20, bias=self.correction_bias)
        ctx.router_stats("moe", logits, ids, experts=128, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids) + self.shared(x)


class Sparse(nn.Module):
    """x += norm >> attn
    x += norm >> moe(experts=128, hidden=1408, top_k=8, shared=1408, scores=sigmoid, correction_bias=true,
    renormalize_eps=1e-20)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.attn = SparseAttn()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-5)
        self.moe = SparseMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(151552)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.lm_head = nn.Linear(4096, 151552, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """glm_4_5_air: Dense Sparse * 45"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Dense,) + (Sparse,) * 45)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
