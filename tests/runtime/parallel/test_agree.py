"""Ranks that differ: an error on all of them, within seconds, that names ranks and what to do."""

import time

import pytest
import torch

import hybridc
from hybridc.runtime.context import PackedSeq
from hybridc.runtime.errors import UsageError
from tests.equivalence.ranks import on_ranks
from tests.runtime.parallel.models import COPIES, DENSE, DP_TP, HYBRID, device_mesh, put, tokens


def said_by(action):
    """What an error of usage says, which comes within seconds."""
    start = time.monotonic()
    with pytest.raises(UsageError) as error:
        action()
    assert time.monotonic() - start < 10
    return str(error.value)


def put_apart(kind, mesh):
    """On a rank: what `shard` says where the last rank has something else."""
    last = torch.distributed.get_rank() == torch.distributed.get_world_size() - 1
    spec, axes = DENSE, mesh
    if last and kind == "spec":
        spec = DENSE.replace("rope=rope()", "rope=rope(theta=500000)")
    if last and kind == "mesh":
        axes = {"dp": 4}
    made = hybridc.compile(spec, mesh=axes)
    net = made.load(init=False)
    if last and kind == "shape":
        net.head.rmsnorm.weight = torch.nn.Parameter(torch.ones(31))
    return said_by(lambda: made.shard(net, device_mesh(mesh)))


REMEDY = "start all ranks from one emitted package"


@pytest.mark.parametrize(
    "kind, says",
    [
        ("spec", "another spec"),
        ("mesh", "a package of another mesh"),
        ("shape", "other shapes or dtypes of parameters"),
    ],
)
def test_other_models(kind, says):
    assert set(on_ranks(4, put_apart, kind, DP_TP[1])) == {f"rank 3 has {says} than rank 0; {REMEDY}"}


def put_on_other_mesh():
    """On a rank: what `shard` says of a mesh that the model was not compiled for."""
    made = hybridc.compile(DENSE, mesh={"tp": 2})
    return said_by(lambda: made.shard(made.load(init=False), device_mesh({"dp": "fsdp(2)"})))


def test_another_mesh():
    assert set(on_ranks(2, put_on_other_mesh)) == {
        "the mesh has dp = 2; compile with --mesh for it, or give the module's own: tp=2"
    }


BATCHES = {
    "ids": lambda ids, other: {"input_ids": (ids + other) % 45},
    "order": lambda ids, other: {"input_ids": ids.flip(1) if other else ids},
    "length": lambda ids, other: {"input_ids": ids[:, : 11 - other]},
    "rows": lambda ids, other: {"input_ids": ids[other:]},
    "dims": lambda ids, other: {"input_ids": ids[0] if other else ids},
    "mask": lambda ids, other: {"input_ids": ids, "attention_mask": torch.ones_like(ids).tril(9 - other)},
    "no mask": lambda ids, other: {"input_ids": ids, "attention_mask": torch.ones_like(ids).tril(9) if other else None},
    "documents": lambda ids, other: {"input_ids": ids, "seq": PackedSeq([0, 5 + other, 44])},
}


def forwards():
    """On a rank: what forwards say of batches that the second rank of each tp group has otherwise; then one that all
    have."""
    net = put(COPIES, {"dp": 2, "tp": 2})
    ids, other = tokens()["input_ids"], net.mesh.tp.rank
    said = {kind: said_by(lambda make=make: net(**make(ids, other))) for kind, make in BATCHES.items()}
    return said, net(ids + net.mesh.dp.rank).logits.shape


def test_other_tokens_on_tensor_parallel_ranks():
    for rank, (said, shape) in enumerate(on_ranks(4, forwards)):
        for text in said.values():
            one, other = (0, 1) if rank < 2 else (2, 3)
            assert text.startswith(f"rank {other} got other tokens than rank {one}: ")
            assert text.endswith("give ranks that differ along tp the same batch, and other ones along dp alone")
        assert f"[4, 11] on rank {one} and [4, 10] on rank {other}" in said["length"]
        assert shape == (4, 11, 45)


def steps():
    """On a rank: what steps say."""
    net = put(COPIES, {"dp": 2, "tp": 2})
    rank, batch = torch.distributed.get_rank(), tokens(rows=1)
    unlabelled = {"input_ids": batch["input_ids"]}
    return [
        said_by(lambda: net.step([batch] * (1 + (rank == 3)))),
        said_by(lambda: net.step([batch if rank != 1 else tokens(rows=1, seed=5)])),
        said_by(lambda: net.step([batch if rank < 2 else unlabelled])),
        said_by(lambda: net.step([])),
        int(net.step([batch]).targets),
    ]


def test_other_micro_batches():
    count, targets, labels, none, right = zip(*on_ranks(4, steps), strict=True)
    remedy = "give ranks that differ along tp or pp alone the same micro-batches"
    assert set(count) == {f"rank 3 has 2 micro-batches with 14 targets, and rank 2 1 with 7; {remedy}"}
    assert all(text.startswith("rank 1 has ") and text.endswith(remedy) for text in targets)
    assert labels[0] == labels[1]
    assert labels[0] == "ranks 2, 3 cannot use the micro-batches given there; see what is said of them there"
    assert labels[2] == labels[3] == "a micro-batch has no labels; give input_ids and labels"
    assert set(none) == {"no rank has a micro-batch; give `step` one or more"}
    assert len(set(right)) == 1 and right[0] > 0


def test_a_model_that_is_not_on_its_mesh():
    net = hybridc.compile(HYBRID, mesh={"dp": "fsdp(2)"}).load()
    with pytest.raises(UsageError, match="put it on its mesh"):
        net(**tokens())
    with pytest.raises(UsageError, match="put it on its mesh"):
        net.step([tokens()])
