"""Small models on meshes of this machine's ranks, and how far what they give is from the serial model's."""

from functools import cache

import torch
import torch.distributed.fsdp  # slow, and so before ranks are forked
from torch.distributed.device_mesh import init_device_mesh

import hybridc

VOCAB = 45

DENSE = """
model dense {
  param dim = 32
  block A {
    x += rmsnorm() >> attention(heads=4, kv_heads=2, rope=rope(), qk_norm=rmsnorm(), bias=true, out_bias=true)
    x += layernorm() >> swiglu(40)
  }
  shared block S { x += rmsnorm() >> mlp(48, bias=true, down_norm=rmsnorm()) }
  embed = embedding(45, dim)
  layers = A S A S
  head = rmsnorm() >> lm_head(45, tied=true)
}
"""

COPIES = """
model copies {
  param dim = 32
  block A { x += rmsnorm() >> attention(heads=4, kv_heads=1, bias=true) }
  embed = embedding(45, dim)
  layers = A * 2
  head = rmsnorm() >> lm_head(45, bias=true)
}
"""
"""Over two tp ranks both have the only kv head."""

HYBRID = """
model hybrid {
  param dim = 32
  block M { x += rmsnorm() >> mamba2(heads=4, head_dim=8, state=8, chunk=8) }
  block E {
    x += rmsnorm() >> attention(heads=4, kv_heads=2, rope=rope())
    x += rmsnorm() >> moe(experts=4, hidden=16, top_k=2, aux_coef=0.1, z_coef=0.01)
  }
  embed = embedding(45, dim)
  layers = M E M E
  head = rmsnorm() >> lm_head(45)
}
"""

DP = ({"dp": "replicate(2)"}, {"dp": "fsdp(2)"})
DP_TP = ({"dp": "replicate(2)", "tp": 2}, {"dp": "fsdp(2)", "tp": 2})

CASES = [
    *((spec, mesh) for spec in (DENSE, HYBRID) for mesh in DP),
    *((spec, mesh) for spec in (DENSE, COPIES) for mesh in DP_TP),
]


def label(value):
    """A case's words in a test's name."""
    return value.split()[1] if isinstance(value, str) else "-".join(f"{a}{f}" for a, f in value.items())


def sizes(mesh):
    """The axes of a mesh with their numbers of ranks."""
    return {axis: int("".join(c for c in str(form) if c.isdigit())) for axis, form in mesh.items()}


def ranks(mesh):
    """How many ranks a mesh has."""
    return torch.Size(sizes(mesh).values()).numel()


def device_mesh(mesh):
    """torch's mesh for these axes."""
    return init_device_mesh("cpu", tuple(sizes(mesh).values()), mesh_dim_names=tuple(sizes(mesh)))


def put(spec, mesh, seed=0):
    """The model on this rank of its mesh."""
    made = hybridc.compile(spec, mesh=mesh)
    net = made.shard(made.load(init=False), device_mesh(mesh))
    net.init_weights(seed)
    return net


def serial(spec, seed=0):
    """The model on one rank."""
    return hybridc.compile(spec).load(seed=seed)


@cache
def tokens(rows=4, length=11, seed=0):
    """Ids with labels, some of them left out."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (rows, length), generator=generator)
    return {"input_ids": ids, "labels": ids.masked_fill(torch.rand(ids.shape, generator=generator) < 0.2, -100)}


def rows_of(batch, net):
    """This dp rank's rows of a batch."""
    dp = net.mesh.dp
    return {name: t.tensor_split(dp.size)[dp.rank] for name, t in batch.items()}


def off(got, want):
    """Names whose tensors differ, with by how much of the largest number."""
    assert set(got) == set(want), set(got) ^ set(want)
    far = {n: float((got[n] - t).abs().max() / t.abs().max().clamp(min=1e-6)) for n, t in want.items()}
    return {n: e for n, e in far.items() if not e <= 1e-5}


def gradients(net):
    """A serial model's gradients by the names of its state dict."""
    named = net.named_parameters(remove_duplicate=False)
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in named}
