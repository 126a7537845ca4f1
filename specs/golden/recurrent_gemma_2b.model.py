"""recurrent_gemma_2b: 26 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 a55015e80646).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, softplus_decay, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=128, theta=10000.0)


class Embed(nn.Module):
    """embed = embedding(256000, dim, scale=50.5)"""

    INIT = {"embedding.weight": normal(0.05)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256000, 2560)

    def forward(self, ids):
        return 50.5 * self.embedding(ids)


class RecurrentRgLru(nn.Module):
    """rg_lru: rg_lru(blocks=10, init_scale=0.01)"""

    FP32 = ("Lambda",)
    INIT = {
        "in_proj.weight": normal(0.05), "in_proj.bias": zeros(), "conv.weight": normal(0.05), "conv.bias": zeros(),
        "input_gate.weight": normal(0.00625), "input_gate.bias": zeros(), "recurrence_gate.weight": normal(0.00625),
        "recurrence_gate.bias": zeros(), "Lambda": softplus_decay(0.9, 0.999, 8.0),
        "out_proj.weight": normal(0.006934), "out_proj.bias": zeros(),
    }

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(2560, 5120, bias=True)  # 2560 y, 2560 u rows
        self.conv = ops.CausalConv1d(2560, 4, bias=True)
        self.input_gate = ops.BlockLinear(2560, 10)
        self.recurrence_gate = ops.BlockLinear(2560, 10)
        self.Lambda = nn.Parameter(torch.empty(2560))
        self.out_proj = nn.Linear(2560, 2560, bias=True)

    def new_state(self, batch, max_len, device, dtype):
        return ops.MambaState(batch, conv=(2560, 4), ssm=(2560,), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        y, u = self.in_proj(x).chunk(2, dim=-1)
        v = self.conv(u, ctx, state)
        h = ops.rg_lru(v, self.input_gate(v), self.recurrence_gate(v), self.Lambda, ctx, state)
        return self.out_proj(F.gelu(y, approximate="tanh") * h)


class RecurrentMlp(nn.Module):
    """mlp: mlp(7680, act=gelu_tanh, gated=true, bias=true)"""

    INIT = {
        "gate_up.weight": normal(0.05), "gate_up.bias": zeros(), "down.weight": normal(0.006934),
        "down.bias": zeros(),
    }

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2560, 15360, bias=True)  # 7680 gate, 7680 up rows
        self.down = nn.Linear(7680, 2560, bias=True)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class Recurrent(nn.Module):
    """x += norm >> rg_lru(blocks=10, init_scale=0.01)
    x += norm >> mlp
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2560, eps=1e-6)
        self.rg_lru = RecurrentRgLru()
        self.norm_2 = ops.ZeroCenteredRMSNorm(2560, eps=1e-6)
        self.mlp = RecurrentMlp()

    def forward(self, x, ctx, state):
        x = x + self.rg_lru(self.norm(x), ctx, state.get("rg_lru"))
        return x + self.mlp(self.norm_2(x))


class AttentionAttn(nn.Module):
    """attn: attention(heads=10, kv_heads=1, out_bias=true, rope=rope(partial=0.5), window=2048)"""

    INIT = {"qkv.weight": normal(0.05), "out.weight": normal(0.006934), "out.bias": zeros()}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2560, 3072, bias=False)  # 2560 query, 256 key, 256 value rows
        self.out = nn.Linear(2560, 2560, bias=True)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=1, head_dim=256, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((2560, 256, 256), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (10, 256)), k.unflatten(-1, (1, 256)), ctx.rope(ROPE))
        v = v.unflatten(-1, (1, 256))
        y = ops.attention(q, k, v, ctx, state, scale=0.0625, window=2048)
        return self.out(y.flatten(-2))


class AttentionMlp(nn.Module):
    """mlp: mlp(7680, act=gelu_tanh, gated=true, bias=true)"""

    INIT = {
        "gate_up.weight": normal(0.05), "gate_up.bias": zeros(), "down.weight": normal(0.006934),
        "down.bias": zeros(),
    }

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(2560, 15360, bias=True)  # 7680 gate, 7680 up rows
        self.down = nn.Linear(7680, 2560, bias=True)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class Attention(nn.Module):
    """x += norm >> attn: attention(heads=10, kv_heads=1, out_bias=true, rope=rope(partial=0.5), window=2048)
    x += norm >> mlp
    """

    INIT = {"norm.weight": zeros(), "norm_2.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2560, eps=1e-6)
        self.attn = AttentionAttn()
        self.norm_2 = ops.ZeroCenteredRMSNorm(2560, eps=1e-6)
        self.mlp = AttentionMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class Head(nn.Module):
    """head = norm >> lm_head(256000, softcap=30, tied=true)"""

    INIT = {"norm.weight": zeros()}

    def __init__(self):
        super().__init__()
        self.norm = ops.ZeroCenteredRMSNorm(2560, eps=1e-6)
        self.lm_head = nn.Linear(2560, 256000, bias=False)

    def forward(self, x):
        return 30.0 * (self.lm_head(self.norm(x)) / 30.0).tanh()


class Model(LanguageModel):
    """recurrent_gemma_2b: (Recurrent Recurrent Attention) * 8 Recurrent * 2"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Recurrent, Recurrent, Attention) * 8 + (Recurrent,) * 2)
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
