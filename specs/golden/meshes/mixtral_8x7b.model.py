"""mixtral_8x7b: 32 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 be3a8e25e192).
Do not edit: edit the spec and compile again.
"""

from torch import nn

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel
from hybridc.runtime.parallel.shards import split, whole

ROPE = ops.Rope(dim=128, theta=1e6)


class Embed(nn.Module):
    """embed = embedding(32000, dim)"""

    INIT = {"embedding.weight": normal(0.02)}
    SHARDS = {"embedding.weight": split(32000)}

    def __init__(self):
        super().__init__()
        self.embedding = ops.VocabEmbedding(16000, 4096)

    def forward(self, ids, ctx):
        return ctx.tp.reduce_scatter(self.embedding(ids))


class LayerAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8, rope=rope(theta=1e6))"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}
    SHARDS = {"qkv.weight": split(4096, 1024, 1024), "out.weight": split(4096, dim=1)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 3072, bias=False)  # 2048 query, 512 key, 512 value rows
        self.out = nn.Linear(2048, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 512, 512), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (16, 128)), k.unflatten(-1, (4, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (4, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class LayerMoe(nn.Module):
    """moe: moe(experts=8, hidden=14336, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}
    SHARDS = {
        "router.weight": whole(), "experts.gate_up": split(14336, 14336, dim=1),
        "experts.down": split(14336, dim=2),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4096, 8, bias=False)
        self.experts = ops.Experts(8, 4096, 7168, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=8, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=8, rope=rope(theta=1e6))
    x += norm >> moe(experts=8, hidden=14336, top_k=2)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}
    SHARDS = {"norm.weight": whole(), "norm_2.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.attn = LayerAttn()
        self.norm_2 = nn.RMSNorm(4096, eps=1e-5)
        self.moe = LayerMoe()

    def forward(self, x, ctx, state):
        h = ctx.tp.reduce_scatter(self.attn(ctx.tp.all_gather(self.norm(x)), ctx, state.get("attn")))
        x = x + h
        return x + ctx.tp.reduce_scatter(self.moe(ctx.tp.all_gather(self.norm_2(x)), ctx))


class Head(nn.Module):
    """head = norm >> lm_head(32000)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}
    SHARDS = {"norm.weight": whole(), "lm_head.weight": split(32000)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(4096, eps=1e-5)
        self.lm_head = nn.Linear(4096, 16000, bias=False)

    def forward(self, x, ctx):
        return self.lm_head(ctx.tp.all_gather(self.norm(x)))


class Model(LanguageModel):
    """mixtral_8x7b: Layer * 32"""

    MESH = {"dp": 4, "tp": 2}

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 32)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(
            input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache, mesh=self.mesh
        )
        x = self.embed(ctx.input_ids, ctx)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output_over(32000, self.head(x, ctx), labels)
