"""deepseek_v3: 61 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 3bd192e0a7b3).
Do not edit: edit the spec and compile again.
"""

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones, zeros
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(
    dim=64, theta=10000.0, kind="yarn", factor=40.0, original_max=4096, attention_factor=1.0, interleaved=True
)


class Embed(nn.Module):
    """embed = embedding(129280, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(129280, 7168)

    def forward(self, ids):
        return self.embedding(ids)


class DenseAttn(nn.Module):
    """attn: mla(heads=128, kv_rank=512, q_rank=1536, nope_dim=128, rope_dim=64, rope=positions, norm=norm,
    scale=0.1352337788608801)
    """

    INIT = {
        "q_down.weight": normal(0.02), "q_up.weight": normal(0.02), "kv_down.weight": normal(0.02),
        "kv_up.weight": normal(0.02), "out.weight": normal(0.02), "q_norm.weight": ones(), "kv_norm.weight": ones(),
    }

    def __init__(self):
        super().__init__()
        self.q_down = nn.Linear(7168, 1536, bias=False)
        self.q_up = nn.Linear(1536, 24576, bias=False)
        self.kv_down = nn.Linear(7168, 576, bias=False)
        self.kv_up = nn.Linear(512, 32768, bias=False)
        self.out = nn.Linear(16384, 7168, bias=False)
        self.q_norm = nn.RMSNorm(1536, eps=1e-6)
        self.kv_norm = nn.RMSNorm(512, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.LatentState(batch, max_len, rank=512, rope_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q = self.q_up(self.q_norm(self.q_down(x))).unflatten(-1, (128, 192))
        latent, k_shared = self.kv_down(x).split((512, 64), dim=-1)
        latent = self.kv_norm(latent)
        q, q_rope = q.split((128, 64), dim=-1)
        q_rope, k_shared = ops.rope(q_rope, k_shared.unsqueeze(-2), ctx.rope(ROPE))
        q = torch.cat((q, q_rope), dim=-1)
        y = ops.latent_attention(
            q, latent, k_shared, self.kv_up.weight, ctx, state,
            value_dim=128, scale=0.1352337788608801,
        )
        return self.out(y.flatten(-2))


class DenseMlp(nn.Module):
    """mlp: swiglu(18432)"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(7168, 36864, bias=False)  # 18432 gate, 18432 up rows
        self.down = nn.Linear(18432, 7168, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Dense(nn.Module):
    """x += norm >> attn
    x += norm >> mlp: swiglu(18432)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(7168, eps=1e-6)
        self.attn = DenseAttn()
        self.norm_2 = nn.RMSNorm(7168, eps=1e-6)
        self.mlp = DenseMlp()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.mlp(self.norm_2(x))


class SparseAttn(nn.Module):
    """attn: mla(heads=128, kv_rank=512, q_rank=1536, nope_dim=128, rope_dim=64, rope=positions, norm=norm,
    scale=0.1352337788608801)
    """

    INIT = {
        "q_down.weight": normal(0.02), "q_up.weight": normal(0.02), "kv_down.weight": normal(0.02),
        "kv_up.weight": normal(0.02), "out.weight": normal(0.02), "q_norm.weight": ones(), "kv_norm.weight": ones(),
    }

    def __init__(self):
        super().__init__()
        self.q_down = nn.Linear(7168, 1536, bias=False)
        self.q_up = nn.Linear(1536, 24576, bias=False)
        self.kv_down = nn.Linear(7168, 576, bias=False)
        self.kv_up = nn.Linear(512, 32768, bias=False)
        self.out = nn.Linear(16384, 7168, bias=False)
        self.q_norm = nn.RMSNorm(1536, eps=1e-6)
        self.kv_norm = nn.RMSNorm(512, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.LatentState(batch, max_len, rank=512, rope_dim=64, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q = self.q_up(self.q_norm(self.q_down(x))).unflatten(-1, (128, 192))
        latent, k_shared = self.kv_down(x).split((512, 64), dim=-1)
        latent = self.kv_norm(latent)
        q, q_rope = q.split((128, 64), dim=-1)
        q_rope, k_shared = ops.rope(q_rope, k_shared.unsqueeze(-2), ctx.rope(ROPE))
        q = torch.cat((q, q_rope), dim=-1)
        y = ops.latent_attention(
            q, latent, k_shared, self.kv_up.weight, ctx, state,
            value_dim=128, scale=0.1352337788608801,
        )
        return self.out(y.flatten(-2))


class SparseMoeShared(nn.Module):
    """shared of SparseMoe"""

    INIT = {"gate_up.weight": normal(0.02), "down.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(7168, 4096, bias=False)  # 2048 gate, 2048 up rows
        self.down = nn.Linear(2048, 7168, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class SparseMoe(nn.Module):
    """moe: moe(experts=256, hidden=2048, top_k=8, shared=2048, scores=sigmoid, correction_bias=true, groups=8,
    top_groups=4, renormalize_eps=1e-20, scaling=2.5)
    """

    FP32 = ("router.weight", "correction_bias")
    INIT = {
        "router.weight": normal(0.02), "correction_bias": zeros(), "experts.gate_up": normal(0.02),
        "experts.down": normal(0.02),
    }

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(7168, 256, bias=False)
        self.correction_bias = nn.Parameter(torch.empty(256), requires_grad=False)
        self.experts = ops.Experts(256, 7168, 2048, act="silu", gated=True)
        self.shared = SparseMoeShared()

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.sigmoid_topk(
            logits, 8, renormalize=True, eps=1e-20, bias=self.correction_bias, groups=8, top_groups=4,
            scaling=2.5,
        )
        ctx.router_stats("moe", logits, ids, experts=256, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids) + self.shared(x)


class Sparse(nn.Module):
    """x += norm >> attn
    x += norm >> moe(experts=256, hidden=2048, top_k=8, shared=2048, scores=sigmoid, correction_bias=true,
    groups=8, top_groups=4, renormalize_eps=1e-20, scaling=2.5)
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(7168, eps=1e-6)
        self.attn = SparseAttn()
        self.norm_2 = nn.RMSNorm(7168, eps=1e-6)
        self.moe = SparseMoe()

    def forward(self, x, ctx, state):
        x = x + self.attn(self.norm(x), ctx, state.get("attn"))
        return x + self.moe(self.norm_2(x), ctx)


class Head(nn.Module):
    """head = norm >> lm_head(129280)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(7168, eps=1e-6)
        self.lm_head = nn.Linear(7168, 129280, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """deepseek_v3: Dense * 3 Sparse * 58"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(block() for block in (Dense,) * 3 + (Sparse,) * 58)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
