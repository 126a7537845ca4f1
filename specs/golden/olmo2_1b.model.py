"""olmo2_1b: 16 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 fbbb8a10d3cd).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=500000.0)


class Embed(nn.Module):
    """embed = embedding(100352, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100352, 2048)

    def forward(self, ids):
        return self.embedding(ids)


class LayerAttn(nn.Module):
    """attn: attention(heads=16, qk_norm=norm, qk_norm_over=all, rope=rope(theta=500000))"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": ones(), "k_norm.weight": ones(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 6144, bias=False)  # 2048 query, 2048 key, 2048 value rows
        self.q_norm = nn.RMSNorm(2048, eps=1e-6)
        self.k_norm = nn.RMSNorm(2048, eps=1e-6)
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=16, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 2048, 2048), dim=-1)
        q, k = ops.rope(
            self.q_norm(q).unflatten(-1, (16, 128)), self.k_norm(k).unflatten(-1, (16, 128)), ctx.rope(ROPE)
        )
        v = v.unflatten(-1, (16, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
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
    """x += attn: attention(heads=16, qk_norm=norm, qk_norm_over=all, rope=rope(theta=500000)) >> norm
    x += mlp: swiglu(8192) >> norm
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.attn = LayerAttn()
        self.norm = nn.RMSNorm(2048, eps=1e-6)
        self.mlp = LayerMlp()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-6)

    def forward(self, x, ctx, state):
        x = x + self.norm(self.attn(x, ctx, state.get("attn")))
        return x + self.norm_2(self.mlp(x))


class Head(nn.Module):
    """head = norm >> lm_head(100352)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-6)
        self.lm_head = nn.Linear(2048, 100352, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """olmo2_1b: Layer * 16"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Layer,) * 16)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
