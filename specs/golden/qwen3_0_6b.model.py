"""qwen3_0_6b: 28 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 3b564b831e07).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=1e6)


class Embed(nn.Module):
    """embed = embedding(151936, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(151936, 1024)

    def forward(self, ids):
        return self.embedding(ids)


class LayerAttn(nn.Module):
    """attn: attention(heads=16, kv_heads=8, head_dim=128, qk_norm=norm, rope=rope(theta=1e6))"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": ones(), "k_norm.weight": ones(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1024, 4096, bias=False)  # 2048 query, 1024 key, 1024 value rows
        self.q_norm = nn.RMSNorm(128, eps=1e-6)
        self.k_norm = nn.RMSNorm(128, eps=1e-6)
        self.out = nn.Linear(2048, 1024, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 1024, 1024), dim=-1)
        q, k = ops.rope(self.q_norm(q.unflatten(-1, (16, 128))), self.k_norm(k.unflatten(-1, (8, 128))), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class LayerMlp(nn.Module):
    """mlp: swiglu(3072)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(1024, 6144, bias=False)  # 3072 gate, 3072 up rows
        self.down = nn.Linear(3072, 1024, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=16, kv_heads=8, head_dim=128, qk_norm=norm, rope=rope(theta=1e6))
    x += norm >> mlp: swiglu(3072)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1024, eps=1e-6)
        self.attn = LayerAttn()
        self.norm_2 = nn.RMSNorm(1024, eps=1e-6)
        self.mlp = LayerMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(151936, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(1024, eps=1e-6)
        self.lm_head = nn.Linear(1024, 151936, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """qwen3_0_6b: Layer * 28"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 28)
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
