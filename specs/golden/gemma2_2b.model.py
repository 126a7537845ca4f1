"""gemma2_2b: 26 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 821d719a85b3).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=256, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(256000, dim, scale=48)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256000, 2304)

    def forward(self, ids):
        return 48.0 * self.embedding(ids)


class LocalAttn(nn.Module):
    """attn: attention(heads=8, kv_heads=4, head_dim=256, rope=rope(), window=4096, softcap=50)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2304, 4096, bias=False)  # 2048 query, 1024 key, 1024 value rows
        self.out = nn.Linear(2048, 2304, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=256, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 1024, 1024), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (8, 256)), k.unflatten(-1, (4, 256)), ctx.rope(ROPE))
        v = v.unflatten(-1, (4, 256))
        y = ops.attention(q, k, v, ctx, state, scale=0.0625, window=4096, softcap=50.0)
        return self.out(y.flatten(-2))


class LocalMlp(nn.Module):
    """mlp: mlp(9216, act=gelu_tanh, gated=true)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2304, 18432, bias=False)  # 9216 gate, 9216 up rows
        self.down = nn.Linear(9216, 2304, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class Local(nn.Module):
    """x += norm >> attn: attention(heads=8, kv_heads=4, head_dim=256, rope=rope(), window=4096, softcap=50) >>
    norm
    x += norm >> mlp >> norm
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros(), "norm_3.weight": zeros(), "norm_4.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)
        self.attn = LocalAttn()
        self.norm_2 = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)
        self.norm_3 = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)
        self.mlp = LocalMlp()
        self.norm_4 = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)

    def forward(self, x, ctx, state):
        x = x + self.norm_2(self.attn(self.norm(x), ctx, state.get("attn")))
        return x + self.norm_4(self.mlp(self.norm_3(x)))


class GlobalAttn(nn.Module):
    """attn: attention(heads=8, kv_heads=4, head_dim=256, rope=rope(), softcap=50)"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2304, 4096, bias=False)  # 2048 query, 1024 key, 1024 value rows
        self.out = nn.Linear(2048, 2304, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=4, head_dim=256, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 1024, 1024), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (8, 256)), k.unflatten(-1, (4, 256)), ctx.rope(ROPE))
        v = v.unflatten(-1, (4, 256))
        y = ops.attention(q, k, v, ctx, state, scale=0.0625, softcap=50.0)
        return self.out(y.flatten(-2))


class GlobalMlp(nn.Module):
    """mlp: mlp(9216, act=gelu_tanh, gated=true)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2304, 18432, bias=False)  # 9216 gate, 9216 up rows
        self.down = nn.Linear(9216, 2304, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class Global(nn.Module):
    """x += norm >> attn: attention(heads=8, kv_heads=4, head_dim=256, rope=rope(), softcap=50) >> norm
    x += norm >> mlp >> norm
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros(), "norm_3.weight": zeros(), "norm_4.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)
        self.attn = GlobalAttn()
        self.norm_2 = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)
        self.norm_3 = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)
        self.mlp = GlobalMlp()
        self.norm_4 = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)

    def forward(self, x, ctx, state):
        x = x + self.norm_2(self.attn(self.norm(x), ctx, state.get("attn")))
        return x + self.norm_4(self.mlp(self.norm_3(x)))


class Head(nn.Module):
    """head = norm >> lm_head(256000, softcap=30, tied=true)"""

    INIT = {"norm.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2304, eps=1e-6)
        self.lm_head = nn.Linear(2304, 256000, bias=False)

    def forward(self, x):
        return 30.0 * (self.lm_head(self.norm(x)) / 30.0).tanh()


class Model(LanguageModel):
    """gemma2_2b: (Local Global) * 13"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Local, Global) * 13)
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
