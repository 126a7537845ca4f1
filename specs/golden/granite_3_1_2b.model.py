"""granite_3_1_2b: 40 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 d756d29a6608).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=5e6)


class Embed(nn.Module):
    """embed = embedding(49155, dim, scale=12)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(49155, 2048)

    def forward(self, ids):
        return 12.0 * self.embedding(ids)


class LayerAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8, rope=rope(theta=5e6), scale=0.015625, dropout=0.1)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 3072, bias=False)  # 2048 query, 512 key, 512 value rows
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 512, 512), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (32, 64)), k.unflatten(-1, (8, 64)), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 64))
        y = ops.attention(q, k, v, ctx, state, scale=0.015625, dropout=0.1 if self.training else 0.0)
        return self.out(y.flatten(-2))


class LayerMlp(nn.Module):
    """mlp: swiglu(8192)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 16384, bias=False)  # 8192 gate, 8192 up rows
        self.down = nn.Linear(8192, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=32, kv_heads=8, rope=rope(theta=5e6), scale=0.015625, dropout=0.1) >>
    scale(0.22)
    x += norm >> mlp: swiglu(8192) >> scale(0.22)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.attn = LayerAttn()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-5)
        self.mlp = LayerMlp()

    def forward(self, x, ctx, state):
        x = x + 0.22 * self.attn(self.norm(x), ctx, state.get("attn"))
        return x + 0.22 * self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(49155, scale=0.125, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.lm_head = nn.Linear(2048, 49155, bias=False)

    def forward(self, x):
        return 0.125 * self.lm_head(self.norm(x))


class Model(LanguageModel):
    """granite_3_1_2b: Layer * 40"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 40)
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
