"""exaone4_1_2b: 30 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 e70d1aa628c1).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=1e6, kind="llama3", factor=16.0, original_max=8192)


class Embed(nn.Module):
    """embed = embedding(102400, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(102400, 2048)

    def forward(self, ids):
        return self.embedding(ids)


class LayerAttn(nn.Module):
    """attn: attention(heads=32, kv_heads=8, qk_norm=norm, rope=positions)"""

    INIT = {
        "qkv.weight": normal(0.02), "q_norm.weight": ones(), "k_norm.weight": ones(), "out.weight": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 3072, bias=False)  # 2048 query, 512 key, 512 value rows
        self.q_norm = nn.RMSNorm(64, eps=1e-5)
        self.k_norm = nn.RMSNorm(64, eps=1e-5)
        self.out = nn.Linear(2048, 2048, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2048, 512, 512), dim=-1)
        q, k = ops.rope(self.q_norm(q.unflatten(-1, (32, 64))), self.k_norm(k.unflatten(-1, (8, 64))), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 64))
        y = ops.attention(q, k, v, ctx, state, scale=0.125)
        return self.out(y.flatten(-2))


class LayerMlp(nn.Module):
    """mlp: swiglu(4096)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2048, 8192, bias=False)  # 4096 gate, 4096 up rows
        self.down = nn.Linear(4096, 2048, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """x += attn: attention(heads=32, kv_heads=8, qk_norm=norm, rope=positions) >> norm
    x += mlp: swiglu(4096) >> norm
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.attn = LayerAttn()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.mlp = LayerMlp()
        self.norm_2 = nn.RMSNorm(2048, eps=1e-5)

    def forward(self, x, ctx, state):
        x = x + self.norm(self.attn(x, ctx, state.get("attn")))
        return x + self.norm_2(self.mlp(x))


class Head(nn.Module):
    """head = norm >> lm_head(102400, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2048, eps=1e-5)
        self.lm_head = nn.Linear(2048, 102400, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """exaone4_1_2b: Layer * 30"""

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
