"""qwen3_30b_a3b: 48 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 a5ccc5e6d023).
Do not edit: edit the spec and compile again.
"""

from torch import nn

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=1e6)


class Embed(nn.Module):
    """embed = embedding(151936, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(151936, 2048)

    def forward(self, ids):
        return self.embedding(ids)


class SparseAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=4, head_dim=128, qk_norm=norm, rope=rope(theta=1e6))"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": ones(), "k_norm.weight": ones(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 5120, bias=False)  # 4096 query, 512 key, 512 value rows
        self.q_norm = nn.RMSNorm(128, eps=1e-6)
        self.k_norm = nn.RMSNorm(128, eps=1e-6)
        self.out = nn.Linear(4096, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((4096, 512, 512), dim=-1)
        q, k = ops.rope(self.q_norm(q.unflatten(-1, (32, 128))), self.k_norm(k.unflatten(-1, (4, 128))), ctx.rope(ROPE))
        v = v.unflatten(-1, (4, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class SparseMoe(nn.Module):
    """moe: moe(experts=128, hidden=768, top_k=8)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2048, 128, bias=False)
        self.experts = ops.Experts(128, 2048, 768, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 8, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=128, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Sparse(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=4, head_dim=128, qk_norm=norm, rope=rope(theta=1e6))
    x += norm >> moe(experts=128, hidden=768, top_k=8)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-6)
        self.attn = SparseAttn()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-6)
        self.moe = SparseMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(151936)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-6)
        self.lm_head = nn.Linear(2048, 151936, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """qwen3_30b_a3b: Sparse * 48"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Sparse,) * 48)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
