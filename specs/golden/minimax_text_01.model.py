"""minimax_text_01: 80 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 8c89979b042b).
Do not edit: edit the spec and compile again.
"""

from torch import nn
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.context import Context
from hybridc.runtime.init import normal, ones
from hybridc.runtime.module import LanguageModel

ROPE = ops.Rope(dim=64, theta=1e7)


class Embed(nn.Module):
    """embed = embedding(200064, dim)"""

    INIT = {"embedding.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(200064, 6144)

    def forward(self, ids):
        return self.embedding(ids)


class LinearLightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 1.00001, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class LinearMoe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear(nn.Module):
    """x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = LinearLightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = LinearMoe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_2LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.9873517737542058, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_2Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_2(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_2LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_2Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_3LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.9746935475084116, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_3Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_3(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_3LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_3Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_4LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.9620353212626175, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_4Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_4(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_4LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_4Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_5LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.9493770950168233, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_5Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_5(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_5LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_5Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_6LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.9367188687710292, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_6Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_6(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_6LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_6Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_7LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.9240606425252351, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_7Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_7(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_7LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_7Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class FullAttn(nn.Module):
    """attn: attention(heads=64, kv_heads=8, head_dim=128, rope=rope(theta=1e7, partial=0.5))"""

    INIT = {"qkv.weight": normal(0.02), "out.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6144, 10240, bias=False)  # 8192 query, 1024 key, 1024 value rows
        self.out = nn.Linear(8192, 6144, bias=False)

    def new_state(self, batch, max_len, device, dtype):
        return ops.KVState(batch, max_len, heads=8, head_dim=128, device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        q, k, v = self.qkv(x).split((8192, 1024, 1024), dim=-1)
        q, k = ops.rope(q.unflatten(-1, (64, 128)), k.unflatten(-1, (8, 128)), ctx.rope(ROPE))
        v = v.unflatten(-1, (8, 128))
        y = ops.attention(q, k, v, ctx, state, scale=0.08838834764831845)
        return self.out(y.flatten(-2))


class FullMoe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Full(nn.Module):
    """x = norm
    x = kept + attn: attention(heads=64, kv_heads=8, head_dim=128, rope=rope(theta=1e7, partial=0.5))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.attn = FullAttn()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = FullMoe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = self.norm_2(3.5565588200778455 * h + self.attn(h, ctx, state.get("attn")))
        return 3.5565588200778455 * h_2 + self.moe(h_2, ctx)


class Linear_8LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.8987441900336468, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_8Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_8(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_8LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_8Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_9LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.8860859637878526, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_9Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_9(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_9LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_9Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_10LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.8734277375420585, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_10Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_10(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_10LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_10Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_11LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.8607695112962643, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_11Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_11(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_11LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_11Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_12LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.8481112850504702, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_12Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_12(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_12LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_12Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_13LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.8354530588046761, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_13Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_13(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_13LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_13Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_14LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.822794832558882, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_14Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_14(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_14LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_14Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_15LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.7974783800672937, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_15Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_15(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_15LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_15Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_16LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.7848201538214995, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_16Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_16(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_16LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_16Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_17LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.7721619275757053, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_17Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_17(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_17LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_17Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_18LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.7595037013299112, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_18Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_18(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_18LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_18Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_19LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.746845475084117, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_19Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_19(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_19LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_19Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_20LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.7341872488383229, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_20Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_20(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_20LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_20Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_21LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.7215290225925287, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_21Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_21(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_21LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_21Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_22LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.6962125701009404, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_22Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_22(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_22LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_22Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_23LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.6835543438551462, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_23Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_23(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_23LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_23Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_24LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.6708961176093522, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_24Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_24(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_24LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_24Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_25LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.658237891363558, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_25Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_25(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_25LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_25Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_26LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.6455796651177639, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_26Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_26(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_26LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_26Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_27LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.6329214388719697, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_27Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_27(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_27LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_27Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_28LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.6202632126261756, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_28Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_28(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_28LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_28Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_29LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.5949467601345874, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_29Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_29(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_29LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_29Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_30LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.5822885338887932, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_30Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_30(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_30LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_30Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_31LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.569630307642999, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_31Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_31(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_31LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_31Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_32LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.5569720813972049, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_32Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_32(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_32LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_32Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_33LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.5443138551514107, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_33Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_33(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_33LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_33Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_34LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.5316556289056166, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_34Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_34(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_34LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_34Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_35LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.5189974026598224, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_35Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_35(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_35LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_35Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_36LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.49368095016823416, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_36Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_36(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_36LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_36Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_37LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.48102272392244, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_37Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_37(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_37LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_37Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_38LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.46836449767664584, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_38Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_38(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_38LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_38Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_39LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.4557062714308518, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_39Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_39(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_39LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_39Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_40LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.44304804518505764, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_40Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_40(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_40LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_40Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_41LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.4303898189392635, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_41Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_41(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_41LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_41Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_42LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.4177315926934693, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_42Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_42(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_42LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_42Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_43LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.392415140201881, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_43Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_43(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_43LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_43Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_44LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.37975691395608685, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_44Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_44(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_44LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_44Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_45LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.3670986877102927, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_45Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_45(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_45LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_45Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_46LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.35444046146449854, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_46Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_46(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_46LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_46Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_47LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.3417822352187045, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_47Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_47(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_47LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_47Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_48LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.32912400897291033, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_48Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_48(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_48LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_48Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_49LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.3164657827271162, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_49Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_49(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_49LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_49Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_50LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.29114933023552786, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_50Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_50(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_50LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_50Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_51LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.2784911039897337, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_51Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_51(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_51LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_51Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_52LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.26583287774393954, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_52Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_52(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_52LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_52Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_53LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.2531746514981454, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_53Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_53(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_53LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_53Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_54LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.24051642525235123, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_54Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_54(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_54LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_54Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_55LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.22785819900655718, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_55Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_55(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_55LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_55Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_56LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.21519997276076303, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_56Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_56(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_56LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_56Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_57LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.1898835202691747, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_57Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_57(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_57LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_57Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_58LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.17722529402338055, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_58Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_58(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_58LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_58Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_59LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.1645670677775864, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_59Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_59(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_59LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_59Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_60LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.15190884153179224, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_60Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_60(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_60LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_60Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_61LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.13925061528599808, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_61Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_61(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_61LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_61Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_62LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.12659238904020392, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_62Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_62(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_62LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_62Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_63LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.11393416279440975, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_63Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_63(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_63LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_63Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_64LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.08861771030282155, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_64Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_64(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_64LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_64Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_65LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.07595948405702739, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_65Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_65(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_65LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_65Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_66LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.06330125781123323, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_66Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_66(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_66LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_66Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_67LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.05064303156543908, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_67Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_67(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_67LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_67Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_68LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.037984805319644925, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_68Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_68(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_68LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_68Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_69LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.025326579073850764, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_69Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_69(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_69LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_69Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Linear_70LightningAttention(nn.Module):
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, 0.012668352828056607, x.device)
        y = ops.lightning_attention(q, k, v, slopes, ctx, state, chunk=256)
        return self.out_proj(gate.sigmoid() * self.norm(y.flatten(-2)))


class Linear_70Moe(nn.Module):
    """moe: moe(experts=32, hidden=9216, top_k=2)"""

    FP32 = ("router.weight",)
    INIT = {"router.weight": normal(0.02), "experts.gate_up": normal(0.02), "experts.down": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6144, 32, bias=False)
        self.experts = ops.Experts(32, 6144, 9216, act="silu", gated=True)

    def forward(self, x, ctx):
        logits = ops.router_logits(x, self.router.weight)
        weights, ids = ops.softmax_topk(logits, 2, renormalize=True)
        ctx.router_stats("moe", logits, ids, experts=32, aux_coef=0.0, z_coef=0.0)
        return self.experts(x, weights.to(x.dtype), ids)


class Linear_70(nn.Module):
    """Linear:
    x = norm
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / 79.00001 + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = Linear_70LightningAttention()
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = Linear_70Moe()

    def forward(self, x, ctx, state):
        h = self.norm(x)
        h_2 = 3.5565588200778455 * h + self.lightning_attention(h, ctx, state.get("lightning_attention"))
        h_3 = self.norm_2(h_2)
        return 3.5565588200778455 * h_3 + self.moe(h_3, ctx)


class Head(nn.Module):
    """head = norm >> lm_head(200064)"""

    INIT = {"norm.weight": ones(), "lm_head.weight": normal(0.02)}

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lm_head = nn.Linear(6144, 200064, bias=False)

    def forward(self, x):
        return self.lm_head(self.norm(x))


class Model(LanguageModel):
    """minimax_text_01: 80 layers"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        _order = [
            Linear, Linear_2, Linear_3, Linear_4, Linear_5, Linear_6, Linear_7, Full, Linear_8, Linear_9, Linear_10,
            Linear_11, Linear_12, Linear_13, Linear_14, Full, Linear_15, Linear_16, Linear_17, Linear_18, Linear_19,
            Linear_20, Linear_21, Full, Linear_22, Linear_23, Linear_24, Linear_25, Linear_26, Linear_27, Linear_28,
            Full, Linear_29, Linear_30, Linear_31, Linear_32, Linear_33, Linear_34, Linear_35, Full, Linear_36,
            Linear_37, Linear_38, Linear_39, Linear_40, Linear_41, Linear_42, Full, Linear_43, Linear_44, Linear_45,
            Linear_46, Linear_47, Linear_48, Linear_49, Full, Linear_50, Linear_51, Linear_52, Linear_53, Linear_54,
            Linear_55, Linear_56, Full, Linear_57, Linear_58, Linear_59, Linear_60, Linear_61, Linear_62, Linear_63,
            Full, Linear_64, Linear_65, Linear_66, Linear_67, Linear_68, Linear_69, Linear_70, Full,
        ]
        self.layers = nn.ModuleList(block() for block in _order)
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
