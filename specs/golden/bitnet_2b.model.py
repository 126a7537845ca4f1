"""bitnet_2b: 30 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 ef7f9419a2f5).
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
    """embed = embedding(128256, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(128256, 2560)

    def forward(self, ids):
        return self.embedding(ids)


class LayerAttn(nn.Module):
    """attn: attention(heads=20, kv_heads=5, out_norm=norm, rope=rope(theta=500000))"""

    INIT = {"qkv.weight": normal(0.02), "out_norm.weight": ones(), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = ops.BitLinear(2560, 3840, bias=False, parts=(2560, 640, 640))  # 2560 query, 640 key, 640 value rows
        self.out_norm = nn.RMSNorm(2560, eps=1e-5)
        self.out = ops.BitLinear(2560, 2560, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=5, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2560, 640, 640), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (20, 128)), k.unflatten(-1, (5, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (5, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(self.out_norm(y.flatten(-2)))


class LayerMlp(nn.Module):
    """mlp: mlp(6912, act=relu2, gated=true, down_norm=norm)"""

    INIT = {"gate_up.weight": normal(0.02), "down_norm.weight": ones(), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = ops.BitLinear(2560, 13824, bias=False, parts=(6912, 6912))  # 6912 gate, 6912 up rows
        self.down_norm = nn.RMSNorm(6912, eps=1e-5)
        self.down = ops.BitLinear(6912, 2560, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        inside = F.relu(gate).square() * up
        return self.down(self.down_norm(inside))


class Layer(nn.Module):
    """x += norm >> attn: attention(heads=20, kv_heads=5, out_norm=norm, rope=rope(theta=500000))
    x += norm >> mlp(6912, act=relu2, gated=true, down_norm=norm)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2560, eps=1e-5)
        self.attn = LayerAttn()
        self.norm_2 = nn.RMSNorm(2560, eps=1e-5)
        self.mlp = LayerMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(ops.BitInput(self.norm(x)), ctx, state.get("attn"))
        return x + self.mlp(ops.BitInput(self.norm_2(x)))


class Head(nn.Module):
    """head = norm >> lm_head(128256, tied=true)"""

    INIT = {"norm.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(2560, eps=1e-5)
        self.lm_head = nn.Linear(2560, 128256, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """bitnet_2b: Layer * 30"""

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
