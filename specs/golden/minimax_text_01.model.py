"""minimax_text_01: 80 layers. Emitted by hybridc 0.1.0 from spec.hyb (sha256 214884bb3677).
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
    """lightning_attention: lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / (79 + 1e-5) + 1e-5,
    norm=rmsnorm(eps=1e-6))
    """

    INIT = {"in_proj.weight": normal(0.02), "norm.weight": ones(), "out_proj.weight": normal(0.02)}

    def __init__(self, slope_scale):
        super().__init__()
        self.slope_scale = slope_scale
        self.in_proj = nn.Linear(6144, 32768, bias=False)  # 8192 q, k, v and gate rows
        self.out_proj = nn.Linear(8192, 6144, bias=False)
        self.norm = nn.RMSNorm(8192, eps=1e-6)

    def new_state(self, batch, max_len, device, dtype):
        return ops.ScanState(batch, ssm=(64, 128, 128), device=device, dtype=dtype)

    def forward(self, x, ctx, state=None):
        qkv, gate = self.in_proj(x).split((24576, 8192), dim=-1)
        q, k, v = (t.unflatten(-1, (64, 128)) for t in F.silu(qkv).chunk(3, dim=-1))
        slopes = ops.alibi_slopes(64, self.slope_scale, x.device)
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
    x = kept + lightning_attention(heads=64, head_dim=128, slope_scale=1 - layer / (79 + 1e-5) + 1e-5,
    norm=rmsnorm(eps=1e-6))
    x = norm
    x = kept + moe
    """

    INIT = {"norm.weight": ones(), "norm_2.weight": ones()}

    def __init__(self, slope_scale):
        super().__init__()
        self.norm = nn.RMSNorm(6144, eps=1e-5)
        self.lightning_attention = LinearLightningAttention(slope_scale)
        self.norm_2 = nn.RMSNorm(6144, eps=1e-5)
        self.moe = LinearMoe()

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
    """minimax_text_01: (Linear Linear Linear Linear Linear Linear Linear Full) * 10"""

    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList([
            Linear(slope_scale=1.00001), Linear(slope_scale=0.9873517737542058), Linear(slope_scale=0.9746935475084116),
            Linear(slope_scale=0.9620353212626175), Linear(slope_scale=0.9493770950168233),
            Linear(slope_scale=0.9367188687710292), Linear(slope_scale=0.9240606425252351), Full(),
            Linear(slope_scale=0.8987441900336468), Linear(slope_scale=0.8860859637878526),
            Linear(slope_scale=0.8734277375420585), Linear(slope_scale=0.8607695112962643),
            Linear(slope_scale=0.8481112850504702), Linear(slope_scale=0.8354530588046761),
            Linear(slope_scale=0.822794832558882), Full(), Linear(slope_scale=0.7974783800672937),
            Linear(slope_scale=0.7848201538214995), Linear(slope_scale=0.7721619275757053),
            Linear(slope_scale=0.7595037013299112), Linear(slope_scale=0.746845475084117),
            Linear(slope_scale=0.7341872488383229), Linear(slope_scale=0.7215290225925287), Full(),
            Linear(slope_scale=0.6962125701009404), Linear(slope_scale=0.6835543438551462),
            Linear(slope_scale=0.6708961176093522), Linear(slope_scale=0.658237891363558),
            Linear(slope_scale=0.6455796651177639), Linear(slope_scale=0.6329214388719697),
            Linear(slope_scale=0.6202632126261756), Full(), Linear(slope_scale=0.5949467601345874),
            Linear(slope_scale=0.5822885338887932), Linear(slope_scale=0.569630307642999),
            Linear(slope_scale=0.5569720813972049), Linear(slope_scale=0.5443138551514107),
            Linear(slope_scale=0.5316556289056166), Linear(slope_scale=0.5189974026598224), Full(),
            Linear(slope_scale=0.49368095016823416), Linear(slope_scale=0.48102272392244),
            Linear(slope_scale=0.46836449767664584), Linear(slope_scale=0.4557062714308518),
            Linear(slope_scale=0.44304804518505764), Linear(slope_scale=0.4303898189392635),
            Linear(slope_scale=0.4177315926934693), Full(), Linear(slope_scale=0.392415140201881),
            Linear(slope_scale=0.37975691395608685), Linear(slope_scale=0.3670986877102927),
            Linear(slope_scale=0.35444046146449854), Linear(slope_scale=0.3417822352187045),
            Linear(slope_scale=0.32912400897291033), Linear(slope_scale=0.3164657827271162), Full(),
            Linear(slope_scale=0.29114933023552786), Linear(slope_scale=0.2784911039897337),
            Linear(slope_scale=0.26583287774393954), Linear(slope_scale=0.2531746514981454),
            Linear(slope_scale=0.24051642525235123), Linear(slope_scale=0.22785819900655718),
            Linear(slope_scale=0.21519997276076303), Full(), Linear(slope_scale=0.1898835202691747),
            Linear(slope_scale=0.17722529402338055), Linear(slope_scale=0.1645670677775864),
            Linear(slope_scale=0.15190884153179224), Linear(slope_scale=0.13925061528599808),
            Linear(slope_scale=0.12659238904020392), Linear(slope_scale=0.11393416279440975), Full(),
            Linear(slope_scale=0.08861771030282155), Linear(slope_scale=0.07595948405702739),
            Linear(slope_scale=0.06330125781123323), Linear(slope_scale=0.05064303156543908),
            Linear(slope_scale=0.037984805319644925), Linear(slope_scale=0.025326579073850764),
            Linear(slope_scale=0.012668352828056607), Full(),
        ])
        self.head = Head()

    def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):
        ctx = Context(input_ids, attention_mask=attention_mask, seq=seq, positions=positions, cache=cache)
        x = self.embed(ctx.input_ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, ctx.state(i))
        return ctx.output(self.head(x), labels)
