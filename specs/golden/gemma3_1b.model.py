"""gemma3_1b: 26 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 fde775858f7c).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=256, theta=10000.0)
ROPE_2 = ops.Rope(dim=256, theta=1e6)


class Embed(nn.Module):
    """embed = embedding(262144, dim, scale=33.94112549695428)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(262144, 1152)

    def forward(self, ids):
        return 33.94112549695428 * self.embedding(ids)


class LocalAttn(nn.Module):
    """attn: attention(heads=4, kv_heads=1, head_dim=256, qk_norm=norm, rope=rope(), window=512)"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": zeros(), "k_norm.weight": zeros(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1152, 1536, bias=False)  # 1024 query, 256 key, 256 value rows
        self.q_norm = ops.ZeroCenteredRMSNorm(256, eps=1e-6)
        self.k_norm = ops.ZeroCenteredRMSNorm(256, eps=1e-6)
        self.out = nn.Linear(1024, 1152, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=1, head_dim=256, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((1024, 256, 256), dim=-1)
        q, k = ops.rope(self.q_norm(q.unflatten(-1, (4, 256))), self.k_norm(k.unflatten(-1, (1, 256))), ctx.rope(ROPE))
        v = v.unflatten(-1, (1, 256))
        y = ops.attention(q, k, v, ctx, state, scale=0.0625, window=512)
        return self.out(y.flatten(-2))


class LocalMlp(nn.Module):
    """mlp: mlp(6912, act=gelu_tanh, gated=true)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(1152, 13824, bias=False)  # 6912 gate, 6912 up rows
        self.down = nn.Linear(6912, 1152, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class Local(nn.Module):
    """x += norm >> attn: attention(heads=4, kv_heads=1, head_dim=256, qk_norm=norm, rope=rope(), window=512) >>
    norm
    x += norm >> mlp >> norm
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros(), "norm_3.weight": zeros(), "norm_4.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)
        self.attn = LocalAttn()
        self.norm_2 = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)
        self.norm_3 = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)
        self.mlp = LocalMlp()
        self.norm_4 = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)

    def forward(self, x, ctx, state):
        x = x + self.norm_2(self.attn(self.norm(x), ctx, state.get("attn")))
        return x + self.norm_4(self.mlp(self.norm_3(x)))


class GlobalAttn(nn.Module):
    """attn: attention(heads=4, kv_heads=1, head_dim=256, qk_norm=norm, rope=rope(theta=1e6))"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": zeros(), "k_norm.weight": zeros(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1152, 1536, bias=False)  # 1024 query, 256 key, 256 value rows
        self.q_norm = ops.ZeroCenteredRMSNorm(256, eps=1e-6)
        self.k_norm = ops.ZeroCenteredRMSNorm(256, eps=1e-6)
        self.out = nn.Linear(1024, 1152, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=1, head_dim=256, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((1024, 256, 256), dim=-1)
        q, k = ops.rope(
            self.q_norm(q.unflatten(-1, (4, 256))), self.k_norm(k.unflatten(-1, (1, 256))), ctx.rope(ROPE_2)
        )
        v = v.unflatten(-1, (1, 256))
        y = ops.attention(q, k, v, ctx, state, scale=0.0625)
        return self.out(y.flatten(-2))


class GlobalMlp(nn.Module):
    """mlp: mlp(6912, act=gelu_tanh, gated=true)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(1152, 13824, bias=False)  # 6912 gate, 6912 up rows
        self.down = nn.Linear(6912, 1152, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class Global(nn.Module):
    """x += norm >> attn: attention(heads=4, kv_heads=1, head_dim=256, qk_norm=norm, rope=rope(theta=1e6)) >> norm
    x += norm >> mlp >> norm
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros(), "norm_3.weight": zeros(), "norm_4.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)
        self.attn = GlobalAttn()
        self.norm_2 = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)
        self.norm_3 = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)
        self.mlp = GlobalMlp()
        self.norm_4 = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)

    def forward(self, x, ctx, state):
        x = x + self.norm_2(self.attn(self.norm(x), ctx, state.get("attn")))
        return x + self.norm_4(self.mlp(self.norm_3(x)))


class Head(nn.Module):
    """head = norm >> lm_head(262144, tied=true)"""

    INIT = {"norm.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(1152, eps=1e-6)
        self.lm_head = nn.Linear(1152, 262144, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """gemma3_1b: (Local Local Local Local Local Global) * 4 Local * 2"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            Local, Local, Local, Local, Local, Global, Local, Local, Local, Local, Local, Global, Local, Local, Local,
            Local, Local, Global, Local, Local, Local, Local, Local, Global, Local, Local,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
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
