"""qwen1_5_moe_a2_7b: 24 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 dc35e7e33148).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones, zeros
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
    """attn: attention(heads=16, bias=true, rope=rope(theta=1e6))"""

    INIT = {"qkv.weight": normal(0.02), "qkv.bias": zeros(), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 6144, bias=True)  # 2048 query, 2048 key, 2048 value rows
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=16, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 2048, 2048), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (16, 128)), k.unflatten(-1, (16, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (16, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class SparseMoeShared(nn.Module):
    """shared of SparseMoe"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 11264, bias=False)  # 5632 gate, 5632 up rows
        self.down = nn.Linear(5632, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class SparseMoe(nn.Module):
    """moe: moe(experts=60, hidden=1408, top_k=4, shared=5632, shared_gate=true, renormalize=false)"""

    FP32 = ("router.weight",)
    INIT = {
        "router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02),
        "shared_gate.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2048, 60, bias=False)
        self.experts = ops.Experts(60, 2048, 1408, act="silu", gated=True)
        self.shared_gate = nn.Linear(2048, 1, bias=False)
        self.shared = SparseMoeShared()

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 4, renormalize=False)
        ctx.router_stats("moe", logits, ids, experts=60, aux_coef=0.0, z_coef=0.0)
        shared = self.shared_gate(x).sigmoid() * self.shared(x)
        return self.experts(x, weights.to(x.dtype), ids) + shared


class Sparse(nn.Module):
    """x += norm >> attn: attention(heads=16, bias=true, rope=rope(theta=1e6))
    x += norm >> moe(experts=60, hidden=1408, top_k=4, shared=5632, shared_gate=true, renormalize=false)
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
    """qwen1_5_moe_a2_7b: Sparse * 24"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Sparse,) * 24)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
