"""Random models on random meshes, from a seed; and smaller ones of a case, to find what makes it fail."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

DIM = 32
VOCAB = 45

SUBLAYERS = (
    "attention(heads=8, kv_heads=2, head_dim=4, rope=rope())",
    "attention(heads=8, kv_heads=1, head_dim=4, bias=true, out_bias=true, qk_norm=rmsnorm())",
    "attention(heads=8, kv_heads=2, window=5, sinks=true, softcap=3, qk_norm=rmsnorm(), qk_norm_over=all)",
    "attention(heads=8, gated=true, out_norm=rmsnorm(), clip=2.0, key_scale=0.5)",
    "mla(heads=8, kv_rank=6, nope_dim=4, rope_dim=2, value_dim=3, q_rank=5, rope=rope(), norm=rmsnorm(), bias=true)",
    "mla(heads=8, kv_rank=6, nope_dim=4, rope_dim=2, rope=rope(), gated=true)",
    "mamba2(heads=8, head_dim=4, state=5, groups=2, chunk=8, norm=gated_rmsnorm())",
    "mamba2(heads=8, head_dim=4, state=5, groups=1, chunk=4, norm=gated_rmsnorm(groups=8, gate_first=false))",
    "mamba2(heads=8, head_dim=4, state=3, groups=8, proj_bias=true, out_bias=true, in_scales=(0.5, 2, 1, 0.1, 3))",
    "mamba2(heads=8, head_dim=4, state=3, groups=4, norm=gated_rmsnorm(groups=2))",
    "mamba(state=3, inner=24, norm=rmsnorm(), proj_bias=true)",
    "mamba(state=4)",
    "gated_delta_net(heads=8, key_heads=2, key_dim=4, norm=gated_rmsnorm(gate_first=false))",
    "gated_delta_net(heads=8, key_dim=3, value_dim=5, neg_eigval=true)",
    "kda(heads=8, head_dim=4, gate_rank=3, norm=gated_rmsnorm(gate_first=false, act=sigmoid))",
    "lightning_attention(heads=8, head_dim=4, norm=rmsnorm(), chunk=4)",
    "rg_lru(blocks=8)",
    "short_conv(bias=true)",
    "swiglu(48)",
    "geglu(40, bias=true)",
    "mlp(56, act=relu2, down_norm=layernorm(), bias=true)",
    "swiglu(24, adapter=lora(3))",
    "moe(experts=4, hidden=16, top_k=2, aux_coef=0.1, z_coef=0.01)",
    "moe(experts=6, hidden=8, top_k=2, scores=sigmoid, correction_bias=true, groups=3, top_groups=2, shared=16)",
    "moe(experts=3, hidden=8, top_k=2, bias=true, router_bias=true, shared=8, shared_gate=true, beta=1.7, limit=0.5)",
    "moe(experts=4, hidden=8, top_k=2, latent=12, latent_bias=true, gated=false, act=relu2)",
    "linear(32, bias=true)",
    "linear(20) >> linear(32)",
    "(attention(heads=8) >> scale(0.5) | mamba2(heads=8, head_dim=4, state=3) >> scale(2.0))",
    "concat(x, x0) >> linear(32)",
)
"""What a residual sublayer is, behind its norm; all divide over 8 ranks, or are had by several of them."""

NORMS = ("rmsnorm()", "layernorm()", "rmsnorm(zero_centered=true)")

HEADS = ("", "tied=true", "bias=true", "tied=true, softcap=5.0", "scale=0.3")

INITS = ("normal(0.02)", "normal(0.1, depth=true)", "kaiming(depth=true)")

BATCHES = ("plain", "padded", "packed")


@dataclass(frozen=True)
class Case:
    """A model, a mesh, and the micro-batches of one step: `rows` of up to `length` tokens for each dp rank."""

    blocks: tuple[tuple[str, ...], ...]
    layers: tuple[int, ...]
    head: str
    mesh: tuple[tuple[str, str], ...]
    batch: str
    rows: int
    length: int
    micro_batches: int
    seed: int
    shared: bool = False
    init: str = INITS[0]

    @property
    def spec(self) -> str:
        """The model in the language."""
        keyword = "shared block" if self.shared else "block"
        blocks = []
        for n, parts in enumerate(self.blocks):
            word = keyword if n == 0 else "block"
            lines = (f"    x += {NORMS[(n + i) % len(NORMS)]} >> {part}" for i, part in enumerate(parts))
            blocks.append("\n".join([f"  {word} B{n} {{", *lines, "  }"]))
        order = " ".join(f"B{n}" for n in self.layers)
        options = f", {self.head}" if self.head else ""
        return "\n".join(
            [
                "model m {",
                f"  param dim = {DIM}",
                *blocks,
                f"  embed = embedding({VOCAB}, dim)",
                f"  layers = {order}",
                f"  head = rmsnorm() >> lm_head({VOCAB}{options})",
                f"  init = {self.init}",
                "}",
            ]
        )

    @property
    def axes(self) -> dict[str, str]:
        """The mesh as `hybridc.compile` takes it."""
        return dict(self.mesh)

    @property
    def ranks(self) -> int:
        """How many ranks the mesh has."""
        out = 1
        for _, form in self.mesh:
            out *= size(form)
        return out

    def smaller(self) -> Iterator[Case]:
        """Cases that leave something out, the largest pieces first."""
        for n in range(len(self.layers)) if len(self.layers) > self.stages else ():
            yield replace(self, layers=self.layers[:n] + self.layers[n + 1 :])
        for axis, form in self.mesh:
            if len(self.mesh) > 1:
                yield replace(self, mesh=tuple(pair for pair in self.mesh if pair[0] != axis))
            elif size(form) > 2:
                yield replace(self, mesh=((axis, form.replace(str(size(form)), "2")),))
        for n, parts in enumerate(self.blocks):
            for i in range(len(parts)) if len(parts) > 1 else ():
                fewer = (*parts[:i], *parts[i + 1 :])
                yield replace(self, blocks=(*self.blocks[:n], fewer, *self.blocks[n + 1 :]))
        rounds = size(self.axes.get("pp", "1"))
        if self.micro_batches > rounds:
            yield replace(self, micro_batches=self.micro_batches - rounds)
        if self.batch != "plain":
            yield replace(self, batch="plain")
        if self.head:
            yield replace(self, head="")
        if self.shared:
            yield replace(self, shared=False)
        if self.init != INITS[0]:
            yield replace(self, init=INITS[0])
        if self.rows > 1:
            yield replace(self, rows=1)
        if self.length > 2:
            yield replace(self, length=self.length // 2)

    @property
    def stages(self) -> int:
        """How many pipeline stages there are."""
        form = self.axes.get("pp", "1")
        return size(form) * (2 if "chunks" in form else 1)


def size(form: str) -> int:
    """The ranks of an axis in any of its forms."""
    digits = form.partition("(")[2] or form
    return int(digits.partition(",")[0].rstrip(")"))


FORMS = {
    "tp": ("{}",),
    "dp": ("fsdp({})", "replicate({})"),
    "pp": ("{}", "interleaved({}, chunks=2)", "zero_bubble({}, chunks=2)"),
}
"""How the axes are written."""


def random_case(seed: int, axes: tuple[str, ...] = ("tp", "dp", "pp"), sublayers: tuple[str, ...] = SUBLAYERS) -> Case:
    """The case of a seed, on 2, 4 or 8 ranks of some of the axes."""
    draw = random.Random(seed)
    left, mesh = draw.choice((2, 4, 8)), {}
    for axis in draw.sample(axes, len(axes)):
        if left > 1:
            sizes = [n for n in (1, 2, 4, 8) if n <= left]
            mesh[axis] = draw.choice(sizes)
            left //= mesh[axis]
    if all(n == 1 for n in mesh.values()):
        mesh[draw.choice(axes)] = 2
    forms = {axis: draw.choice(FORMS[axis]).format(n) for axis, n in mesh.items() if n > 1}
    blocks = tuple(tuple(draw.choices(sublayers, k=draw.randint(1, 3))) for _ in range(draw.randint(1, 2)))
    case = Case(
        blocks=blocks,
        layers=(0,),
        head=draw.choice(HEADS),
        mesh=tuple((axis, forms[axis]) for axis in ("pp", "dp", "tp") if axis in forms),
        batch=draw.choice(BATCHES),
        rows=draw.randint(1, 3),
        length=draw.randint(3, 17),
        micro_batches=draw.choice((1, 2, 3)),
        seed=seed,
        shared=draw.random() < 0.25,
        init=draw.choice(INITS),
    )
    depth = max(case.stages, draw.randint(1, 3))
    micro = max(case.micro_batches, case.stages if "pp" in forms else 1)
    # interleaved schedules take a multiple of the stages' ranks
    micro = -(-micro // size(forms["pp"])) * size(forms["pp"]) if "pp" in forms else micro
    return replace(case, layers=tuple(n % len(blocks) for n in range(depth)), micro_batches=micro)


def shrunk(case: Case, fails) -> Case:  # type: ignore[no-untyped-def]
    """The smallest case that is found to fail still: of each one's smaller ones the first that does."""
    while True:
        for smaller in case.smaller():
            if fails(smaller):
                case = smaller
                break
        else:
            return case
