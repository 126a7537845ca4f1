"""phi3_mini: 32 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 48d82a649387).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=96, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(32064, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32064, 3072)

    def forward(self, ids):
        return self.embedding(ids)


class LayerAttn(nn.Module):
    """attn: attention(heads=32, rope=rope(), window=2047)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(3072, 9216, bias=False)  # 3072 query, 3072 key, 3072 value rows
        self.out = nn.Linear(3072, 3072, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=32, head_dim=96, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((3072, 3072, 3072), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (32, 96)), k.unflatten(-1, (32, 96)), ctx.rope(ROPE))
        v = v.unflatten(-1, (32, 96))
        y = ops.attention(q, k, v, ctx, state, scale=0.10206207261596575, window=2047)
        return self.out(y.flatten(-2))


class LayerMlp(nn.Module):
    """mlp: swiglu(8192)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(3072, 16384, bias=False)  # 8192 gate, 8192 up rows
        self.down = nn.Linear(8192, 3072, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=32, rope=rope(), window=2047)
    x += norm >> mlp: swiglu(8192)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(3072, eps=1e-5)
        self.attn = LayerAttn()
        self.norm_2 = nn.RMSNorm(3072, eps=1e-5)
        self.mlp = LayerMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(32064)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(3072, eps=1e-5)
        self.lm_head = nn.Linear(3072, 32064, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """phi3_mini: Layer * 32"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 32)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
