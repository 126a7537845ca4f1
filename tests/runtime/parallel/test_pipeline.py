"""Pipeline stages: a step's loss and gradients are the serial model's, under every schedule and whatever travels."""

import json

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

import hybridc
from hybridc.runtime.context import PackedSeq
from hybridc.runtime.errors import UsageError
from hybridc.runtime.parallel import pipeline
from hybridc.runtime.parallel.measure import layers_of, main, measure
from tests.equivalence.ranks import on_ranks
from tests.runtime.parallel.models import DENSE, HYBRID, gradients, label, off, rows_of, serial, tokens

ZAMBA = """
model zamba {
  param dim = 32
  block M { x += rmsnorm() >> mamba2(heads=4, head_dim=8, state=8, chunk=8) }
  shared block S {
    t = concat(x, x0) >> linear(dim)
    x += rmsnorm() >> attention(heads=4, rope=rope())
    x += rmsnorm() >> swiglu(24, adapter=lora(3)) + t
  }
  embed = embedding(45, dim)
  layers = M S M S M S
  head = rmsnorm() >> lm_head(45, tied=true)
}
"""
"""A block on several stages, all of whose layers read the embedding and have weights of their own beside the shared."""

KINDS = """
model kinds {
  param dim = 32
  block A { x += rmsnorm() >> moe(experts=4, hidden=16, top_k=2, aux_coef=0.1, z_coef=0.01) }
  block B { x += rmsnorm() >> moe(experts=6, hidden=8, top_k=1, z_coef=0.1) }
  block C { x += rmsnorm() >> moe(experts=3, hidden=8, top_k=1) >> scale(0.5) }
  embed = embedding(45, dim)
  layers = C A B A B C
  head = rmsnorm() >> lm_head(45)
}
"""
"""Routers whose losses are made over layers of several stages, one of which has none."""

PP = ({"pp": 2}, {"pp": "interleaved(2, chunks=2)"}, {"pp": "zero_bubble(2, chunks=2)"}, {"pp": "zbv(2)"})

CASES = [
    *((DENSE, mesh) for mesh in (*PP, {"pp": 4}, {"pp": "zero_bubble(4, chunks=1)"})),
    *((ZAMBA, mesh) for mesh in (*PP, {"pp": "interleaved(2, chunks=3)"})),
    *((KINDS, mesh) for mesh in PP),
    (HYBRID, {"pp": 4}),
    *((DENSE, {**mesh, "dp": "fsdp(2)"}) for mesh in PP[:3]),
    *((ZAMBA, {**mesh, "dp": "fsdp(2)"}) for mesh in (PP[0], PP[3])),
    *((HYBRID, {**mesh, "dp": 2}) for mesh in PP[:2]),
    *((DENSE, {**mesh, "tp": 2}) for mesh in PP[1:3]),
    (HYBRID, {"pp": 2, "tp": 2}),
]


def axes(made):
    """The mesh of a compiled model with its numbers of ranks."""
    return {a.name: a.size for a in made.ir.mesh if a.size > 1}


def ranks(spec, mesh):
    return torch.Size(axes(hybridc.compile(spec, mesh=mesh)).values()).numel()


def put(spec, mesh, *, meta=False):
    """The model on this rank of its mesh."""
    made = hybridc.compile(spec, mesh=mesh)
    sizes = axes(made)
    device_mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    net = made.shard(made.skeleton() if meta else made.load(init=False), device_mesh)
    net.init_weights(0)
    return net


def steps():
    """Two steps' micro-batches, of different lengths, packed, padded and plain; the second step's are longer."""
    padded = {**tokens(length=9, seed=2), "attention_mask": torch.ones(4, 9).tril(4).long()}
    plain = [tokens(seed=0), tokens(rows=2, length=5, seed=1), padded, tokens(rows=8, length=3, seed=3)]
    shifted = {**tokens(length=6, seed=5), "positions": 2 * torch.arange(6).expand(4, 6)}
    return plain, [tokens(length=21, seed=4), *plain, shifted, tokens(rows=2, length=2, seed=6), plain[0]]


def packed(batch, dp=1):
    """A batch whose tokens are documents, cut so that each dp rank's rows have whole ones."""
    rows, length = batch["input_ids"].shape
    total = rows * length
    return {**batch, "seq": PackedSeq([0, 3, total // dp - 2, *range(total // dp, total, total // dp), total])}


def result(made, net, grads):
    """What a step made, as plain values."""
    aux = {name: float(value) for name, value in made.aux.items() if name != "tokens_per_expert"}
    counts = [c.tolist() for c in made.aux.get("tokens_per_expert", [])]
    return float(made.loss), float(made.ce_loss), made.targets, aux, counts, float(net.grad_norm()), grads


def same(got, want):
    """Whether two results are the same, to rounding."""
    assert got[0] == pytest.approx(want[0], rel=1e-6) and got[1] == pytest.approx(want[1], rel=1e-6)
    assert got[2] == want[2] and got[3] == pytest.approx(want[3], rel=1e-5) and got[4] == want[4]
    assert got[5] == pytest.approx(want[5], rel=1e-5)
    assert off(got[6], want[6]) == {}


def trained(spec, mesh):
    """On a rank: two steps whose gradients add up, clipped; then what an optimizer makes of them."""
    net = put(spec, mesh)
    before, found = net.whole_state_dict(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for n, batches in enumerate(steps()):
        mine = [rows_of(batch, net) for batch in batches]
        if n and net.mesh.dp.size == 1:
            mine[0] = packed(mine[0])
        found.append(result(net.step(mine), net, net.whole_gradients()))
    norm = float(net.clip_grad_norm_(0.1))
    optimizer.step()
    return before, found, norm, net.whole_state_dict(), len(net.pipeline._schedules)


@pytest.mark.parametrize("spec, mesh", CASES, ids=label)
def test_steps_are_the_serial_ones(spec, mesh):
    net = serial(spec)
    start, want = {n: t.clone() for n, t in net.state_dict().items()}, []
    for n, batches in enumerate(steps()):
        given = [packed(batches[0]), *batches[1:]] if n and "dp" not in mesh else batches
        done = net.step(given)
        want.append(result(done, net, gradients(net)))
    norm = float(net.clip_grad_norm_(0.1))
    torch.optim.SGD(net.parameters(), lr=0.5).step()
    for before, found, clipped, after, _ in on_ranks(ranks(spec, mesh), trained, spec, mesh):
        assert list(before) == list(start) and all(torch.equal(before[n], t) for n, t in start.items())
        for got, wanted in zip(found, want, strict=True):
            same(got, wanted)
        assert clipped == pytest.approx(norm, rel=1e-5)
        assert off(after, net.state_dict()) == {}


def fewer(mesh):
    """On a rank: a step in which the second dp rank has fewer micro-batches."""
    net = put(HYBRID, mesh)
    batches = [rows_of(batch, net) for batch in steps()[0]]
    return result(net.step(batches[: 4 - net.mesh.dp.rank]), net, net.whole_gradients())


def test_a_dp_rank_may_have_fewer_micro_batches():
    batches = [dict(batch) for batch in steps()[0]]
    batches[3] = {name: t[:4] for name, t in batches[3].items()}
    net = serial(HYBRID)
    want = result(net.step(batches), net, gradients(net))
    for got in on_ranks(4, fewer, {"pp": 2, "dp": 2}):
        same(got, want)


def lengths(spec):
    """On a rank: steps of many lengths and numbers of micro-batches, with buffers of eight tokens more or less."""
    pipeline.ROUND = 8
    net, found = put(spec, PP[1]), []
    for n in (3, 9, 20, 30, 9, 3, 50):
        net.zero_grad()
        found.append(result(net.step([tokens(length=n, seed=n)] * (2 if n == 9 else 4)), net, net.whole_gradients()))
    return found, len(net.pipeline._schedules), len(net.pipeline._layout)


def test_schedules_are_kept_and_remade():
    net, want = serial(KINDS), []
    for n in (3, 9, 20, 30, 9, 3, 50):
        net.zero_grad()
        want.append(result(net.step([tokens(length=n, seed=n)] * (2 if n == 9 else 4)), net, gradients(net)))
    for found, schedules, layout in on_ranks(2, lengths, KINDS):
        assert schedules == pipeline.KEPT and layout == 2
        for got, wanted in zip(found, want, strict=True):
            same(got, wanted)


def held(mesh):
    """On a rank: names of what there is of a model from the meta device, whether it has memory, and the next one's."""
    net = put(DENSE, mesh, meta=True)
    here = dict(net.named_parameters())
    whole = net.whole_state_dict()
    net.load_whole_state_dict({name: t + 1.0 for name, t in whole.items()})
    return sorted(here), any(p.is_meta for p in here.values()), whole, net.whole_state_dict()


@pytest.mark.parametrize("mesh", [{"pp": 2}, {"pp": "zbv(2)", "dp": "fsdp(2)"}], ids=label)
def test_a_rank_has_its_layers_alone(mesh):
    net = serial(DENSE)
    found = on_ranks(ranks(DENSE, mesh), held, mesh)
    dp = len(found) // 2
    for n, (names, meta, whole, loaded) in enumerate(found):
        mine = {0: ("0", "1"), 1: ("2", "3")}[n] if dp == 1 else {0: ("0", "3"), 1: ("1", "2")}[n // dp]
        assert {name.split(".")[1] for name in names if name.startswith("layers.")} <= set(mine) and not meta
        ends = {name.split(".")[0] for name in names} - {"layers"}
        assert ends == (
            {"embed", "head"} if dp == 2 and n < 2 else {"embed"} if n == 0 else {"head"} if dp == 1 else set()
        )
        assert all(torch.equal(whole[name], t) for name, t in net.state_dict().items())
        assert all(torch.equal(loaded[name], t + 1.0) for name, t in net.state_dict().items())


def refusals(mesh):
    """On a rank: what it is told of a forward, and of steps that cannot be made; then a step that can."""
    net = put(DENSE, mesh)
    rank, said = torch.distributed.get_rank(), []
    batch = tokens(length=5)
    other = {**batch, "input_ids": batch["input_ids"].flip(1)} if rank == 1 else batch
    without = {"input_ids": batch["input_ids"]} if rank == 1 else batch
    for mistake in (
        lambda: net(batch["input_ids"]),
        lambda: net.step([batch, batch, other, batch]),
        lambda: net.step([batch] * (3 if rank == 1 else 4)),
        lambda: net.step([batch, batch, batch, without]),
        lambda: net.step([batch]),
        lambda: net.step([batch] * 5),
        lambda: net.load_whole_state_dict({"layers.9.rmsnorm.weight": torch.ones(1)}),
    ):
        try:
            said.append(mistake() and "")
        except UsageError as error:
            said.append(str(error))
    return said, float(net.step([batch] * 4).loss)


@pytest.mark.parametrize("mesh", [{"pp": 2, "dp": 2}, PP[1]], ids=label)
def test_what_cannot_be_run_is_refused_on_all_ranks(mesh):
    found = on_ranks(ranks(DENSE, mesh), refusals, mesh)
    for rank, (said, loss) in enumerate(found):
        forward, other, number, labels, few, five, load = said
        assert "model.step(micro_batches)" in forward
        assert "rank 1 has other tokens" in other if "dp" not in mesh else "rank" in other
        assert "micro-batches" in number and " 3" in number
        assert "no labels" in labels if rank == 1 else "rank 1 cannot use" in labels
        assert ("1 micro-batches for 2 stages" in few) == ("dp" in mesh)
        assert ("multiple of 2" in (five or "")) == ("dp" not in mesh)
        assert "is missing" in load
        assert loss == pytest.approx(found[0][1])


def test_the_package_is_short():
    made = hybridc.compile(KINDS, mesh={"pp": "interleaved(2, chunks=2)"})
    text = made.source["parallel.py"]
    assert "STAGES = (" in text and "ROUTERS = (RouterLosses(4, 2, 0.1, 0.01), RouterLosses(6, 1, 0.0, 0.1),)" in text
    assert 'pipeline(model, mesh, STAGES, "interleaved", width=32, routers=ROUTERS)' in text
    assert len(text.splitlines()) < 30
    assert "x0=True" in hybridc.compile(ZAMBA, mesh={"pp": 2}).source["parallel.py"]
    assert "def forward(self, input_ids" not in made.source["model.py"]


def test_blocks_are_measured(tmp_path, capsys):
    made = hybridc.compile(ZAMBA)
    names = [layer.block for layer in made.ir.layers]
    times = measure(made.load(), names, seq=16)
    assert set(times) == {"embed", "M", "S", "head"} and all(0 < ms < 1e4 for ms in times.values())
    made.save(tmp_path / "zamba")
    main([str(tmp_path / "zamba"), "--seq", "8", "--device", "cpu"])
    written = json.loads(capsys.readouterr().out)
    assert set(written) == set(times)
    stages = hybridc.compile(ZAMBA, mesh={"pp": 2}, stage_times=written).ir.layers[-1].stage
    assert stages == 1
    with pytest.raises(UsageError, match="without one"):
        measure(hybridc.compile(ZAMBA, mesh={"pp": 2}).load(), names)


def test_folded_names_are_read_back():
    assert layers_of("(M M A) * 2 M A * 3") == ["M", "M", "A", "M", "M", "A", "M", "A", "A", "A"]
    assert layers_of("A_2 B") == ["A_2", "B"]
