"""command_r7b: 32 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 1406cdc17d00).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=50000.0, interleaved=True)


class Embed(nn.Module):
    """embed = embedding(256000, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256000, 4096)

    def forward(self, ids):
        return self.embedding(ids)


class LocalAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8, rope=rope(theta=50000, interleaved=true), window=4096)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 6144, bias=False)  # 4096 query, 1024 key, 1024 value rows
        self.out = nn.Linear(4096, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((4096, 1024, 1024), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (32, 128)), k.unflatten(-1, (8, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845, window=4096)
        return self.out(y.flatten(-2))


class LocalMlp(nn.Module):
    """mlp: swiglu(14336)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(4096, 28672, bias=False)  # 14336 gate, 14336 up rows
        self.down = nn.Linear(14336, 4096, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Local(nn.Module):
    """x += norm >> (attn: attention(heads=32, kv_heads=8, rope=rope(theta=50000, interleaved=true), window=4096) |
    mlp)
    """

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4096, eps=1e-5, bias=False)
        self.attn = LocalAttn()
        self.mlp = LocalMlp()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        return x + (self.attn(h, ctx, state.get("attn")) + self.mlp(h))


class GlobalAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4096, 6144, bias=False)  # 4096 query, 1024 key, 1024 value rows
        self.out = nn.Linear(4096, 4096, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((4096, 1024, 1024), dim=-1)
        q, k = q.unflatten(-1, (32, 128)), k.unflatten(-1, (8, 128))
        v = v.unflatten(-1, (8, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class GlobalMlp(nn.Module):
    """mlp: swiglu(14336)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(4096, 28672, bias=False)  # 14336 gate, 14336 up rows
        self.down = nn.Linear(14336, 4096, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Global(nn.Module):
    """x += norm >> (attn: attention(heads=32, kv_heads=8) | mlp)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4096, eps=1e-5, bias=False)
        self.attn = GlobalAttn()
        self.mlp = GlobalMlp()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        return x + (self.attn(h, ctx, state.get("attn")) + self.mlp(h))


class Head(nn.Module):
    """head = norm >> lm_head(256000, scale=0.25, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4096, eps=1e-5, bias=False)
        self.lm_head = nn.Linear(4096, 256000, bias=False)

    def forward(self, x):
        return 0.25 * self.lm_head(self.norm(x))


class Model(LanguageModel):
    """command_r7b: (Local Local Local Global) * 8"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Local, Local, Local, Global) * 8)
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
