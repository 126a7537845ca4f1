"""starcoder2_3b: 30 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 a9fc470eddee).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=999999.4420358813)


class Embed(nn.Module):
    """embed = embedding(49152, dim) >> dropout(0.1)"""

    INIT = {"embedding.weight": normal(0.01804)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(49152, 3072)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids):
        return self.dropout(self.embedding(ids))


class LayerAttn(nn.Module):
    """attn: attention(heads=24, kv_heads=2, bias=true, out_bias=true, rope=rope(theta=999999.4420358813),
    window=4096, dropout=0.1)
    """

    INIT = {"qkv.weight": normal(0.01804), "qkv.bias": zeros(), "out.weight": normal(0.01804), "out.bias": zeros()}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(3072, 3584, bias=True)  # 3072 query, 256 key, 256 value rows
        self.out = nn.Linear(3072, 3072, bias=True)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=2, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((3072, 256, 256), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (24, 128)), k.unflatten(-1, (2, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (2, 128))
        y = ops.attention(
            q, k, v, ctx, state, scale=0.08838834764831845, window=4096, dropout=0.1 if self.training else 0.0
        )
        return self.out(y.flatten(-2))


class LayerMlp(nn.Module):
    """mlp: mlp(12288, act=gelu_tanh, bias=true)"""

    INIT = {"up.weight": normal(0.01804), "up.bias": zeros(), "down.weight": normal(0.01804), "down.bias": zeros()}

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3072, 12288, bias=True)
        self.down = nn.Linear(12288, 3072, bias=True)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=24, kv_heads=2, bias=true, out_bias=true,
    rope=rope(theta=999999.4420358813), window=4096, dropout=0.1) >> dropout(0.1)
    x += norm >> mlp(12288, act=gelu_tanh, bias=true) >> dropout(0.1)
    """

    INIT = {"norm.weight": ones(), "norm.bias": zeros(), "norm_2.weight": ones(), "norm_2.bias": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(3072, eps=1e-5, bias=True)
        self.attn = LayerAttn()
        self.dropout = nn.Dropout(0.1)
        self.norm_2 = nn.LayerNorm(3072, eps=1e-5, bias=True)
        self.mlp = LayerMlp()
        self.dropout_2 = nn.Dropout(0.1)

    def forward(self, x, ctx, state):
        x = x + self.dropout(self.attn(self.norm(x), ctx, state.get("attn")))
        return x + self.dropout_2(self.mlp(self.norm_2(x)))


class Head(nn.Module):
    """head = norm >> lm_head(49152, tied=true)"""

    INIT = {"norm.weight": ones(), "norm.bias": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(3072, eps=1e-5, bias=True)
        self.lm_head = nn.Linear(3072, 49152, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """starcoder2_3b: Layer * 30"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 30)
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
