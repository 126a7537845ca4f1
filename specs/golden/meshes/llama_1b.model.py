"""llama_1b: 16 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 ac18c85b04c7).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel
from hybridc.runtime.parallel.shards import split, whole

ROPE = ops.Rope(dim=64, theta=500000.0, kind="llama3", factor=32.0, original_max=8192)


class Embed(nn.Module):
    """embed = embedding(128256, dim)"""

    INIT = {"embedding.weight": normal(0.02)}
    SHARDS = {"embedding.weight": split(128256)}

    def __init__(self):
        super().__init__()
        self.embedding = ops.VocabEmbedding(64128, 2048)

    def forward(self, ids, ctx):
        return ctx.tp.reduce_scatter(self.embedding(ids))


class LayerAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8, head_dim=64, rope=positions)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}
    SHARDS = {"qkv.weight": split(2048, 512, 512), "out.weight": split(2048, dim=1)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 1536, bias=False)  # 1024 query, 256 key, 256 value rows
        self.out = nn.Linear(1024, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((1024, 256, 256), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (16, 64)), k.unflatten(-1, (4, 64)), ctx.rope(ROPE))
        v = v.unflatten(-1, (4, 64))
        y = ops.attention(q, k, v, ctx, state, scale=0.125)
        return self.out(y.flatten(-2))


class LayerMlp(nn.Module):
    """mlp: swiglu(8192)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}
    SHARDS = {"gate_up.weight": split(8192, 8192), "down.weight": split(8192, dim=1)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 8192, bias=False)  # 4096 gate, 4096 up rows
        self.down = nn.Linear(4096, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=8, head_dim=64, rope=positions)
    x += norm >> mlp: swiglu(8192)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}
    SHARDS = {"norm.weight": whole(), "norm_2.weight": whole()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.attn = LayerAttn()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-5)
        self.mlp = LayerMlp()

    def forward(self, x, ctx, state):
        h = ctx.tp.reduce_scatter(self.attn(ctx.tp.all_gather(self.norm(x)), ctx, state.get("attn")))
        x = x + h
        return x + ctx.tp.reduce_scatter(self.mlp(ctx.tp.all_gather(self.norm_2(x))))


class Head(nn.Module):
    """head = norm >> lm_head(128256, tied=true)"""

    INIT = {"norm.weight": ones()}
    SHARDS = {"norm.weight": whole(), "lm_head.weight": split(128256)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.lm_head = nn.Linear(2048, 64128, bias=False)

    def forward(self, x, ctx):
        return self.lm_head(ctx.tp.all_gather(self.norm(x)))


class Model(LanguageModel):
    """llama_1b: Layer * 16"""

    MESH = {"tp": 2}

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 16)
        self.head = Head()
        self.tie_weights()

    def tie_weights(self):
        self.head.lm_head.weight = self.embed.embedding.weight

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(
            input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache, mesh=self.mesh
        )
        x = self.embed(ctx.input_ids, ctx)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output_over(128256, self.head(x, ctx), labels)
