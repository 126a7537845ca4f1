"""smollm3_3b: 36 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 000c6541a6d6).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=5e6)


class Embed(nn.Module):
    """embed = embedding(128256, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(128256, 2048)

    def forward(self, ids):
        return self.embedding(ids)


class RopeAttn(nn.Module):
    """attn: attention(heads=16, kv_heads=4, rope=rope(theta=5e6))"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 3072, bias=False)  # 2048 query, 512 key, 512 value rows
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 512, 512), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (16, 128)), k.unflatten(-1, (4, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (4, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class RopeMlp(nn.Module):
    """mlp: swiglu(11008)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 22016, bias=False)  # 11008 gate, 11008 up rows
        self.down = nn.Linear(11008, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Rope(nn.Module):
    """x += norm >> attn: attention(heads=16, kv_heads=4, rope=rope(theta=5e6))
    x += norm >> mlp
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-6)
        self.attn = RopeAttn()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-6)
        self.mlp = RopeMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class NoPEAttn(nn.Module):
    """attn: attention(heads=16, kv_heads=4)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 3072, bias=False)  # 2048 query, 512 key, 512 value rows
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 512, 512), dim=-1)
        q, k = q.unflatten(-1, (16, 128)), k.unflatten(-1, (4, 128))
        v = v.unflatten(-1, (4, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class NoPEMlp(nn.Module):
    """mlp: swiglu(11008)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 22016, bias=False)  # 11008 gate, 11008 up rows
        self.down = nn.Linear(11008, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class NoPE(nn.Module):
    """x += norm >> attn: attention(heads=16, kv_heads=4)
    x += norm >> mlp
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-6)
        self.attn = NoPEAttn()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-6)
        self.mlp = NoPEMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(128256, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-6)
        self.lm_head = nn.Linear(2048, 128256, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """smollm3_3b: (Rope Rope Rope NoPE) * 9"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Rope, Rope, Rope, NoPE) * 9)
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
