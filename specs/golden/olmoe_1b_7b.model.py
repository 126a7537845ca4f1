"""olmoe_1b_7b: 16 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 ba973cfb5a83).
Do not edit: edit the spec and compile again.
"""

from torch import nn

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(50304, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50304, 2048)

    def forward(self, ids):
        return self.embedding(ids)


class LayerAttn(nn.Module):
    """attn: attention(heads=16, qk_norm=norm, qk_norm_over=all, rope=rope())"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": ones(), "k_norm.weight": ones(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 6144, bias=False)  # 2048 query, 2048 key, 2048 value rows
        self.q_norm = nn.RMSNorm(2048, eps=1e-5)
        self.k_norm = nn.RMSNorm(2048, eps=1e-5)
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=16, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 2048, 2048), dim=-1)
        q, k = ops.rope(
            self.q_norm(q).unflatten(-1, (16, 128)), self.k_norm(k).unflatten(-1, (16, 128)), ctx.rope(ROPE)
        )
        v = v.unflatten(-1, (16, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class LayerMoe(nn.Module):
    """moe: moe(experts=64, hidden=1024, top_k=8, renormalize=false)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(2048, 64, bias=False)
        self.experts = ops.Experts(64, 2048, 1024, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 8, renormalize=False)
        ctx.router_stats("moe", logits, ids, experts=64, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=16, qk_norm=norm, qk_norm_over=all, rope=rope())
    x += norm >> moe(experts=64, hidden=1024, top_k=8, renormalize=false)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.attn = LayerAttn()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-5)
        self.moe = LayerMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(50304)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.lm_head = nn.Linear(2048, 50304, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """olmoe_1b_7b: Layer * 16"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 16)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
