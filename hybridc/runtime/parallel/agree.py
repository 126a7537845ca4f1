"""Ranks that do not do the same are told so, all of them, before they wait for each other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed

from hybridc.runtime.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from hybridc.runtime.module import LanguageModel
    from hybridc.runtime.parallel.axis import Axis


def agree(spec: str, model: LanguageModel, device_mesh: DeviceMesh) -> None:
    """Raises UsageError on every rank where one was compiled for another mesh, has another spec, or has parameters of
    other shapes or dtypes than the first."""
    made = "; ".join(f"{name} {list(p.shape)} {p.dtype}" for name, p in model.named_parameters())
    found = everywhere([mark(str(dict(model.MESH))), mark(spec), mark(made)], device_mesh)
    ranks = device_mesh.mesh.flatten().tolist()
    kinds = ("a package of another mesh", "another spec", "other shapes or dtypes of parameters")
    for kind, marks in zip(kinds, zip(*found, strict=True), strict=True):
        if others := [rank for rank, m in zip(ranks, marks, strict=True) if m != marks[0]]:
            raise UsageError(
                f"{named(others)} {'has' if len(others) == 1 else 'have'} {kind} than rank {ranks[0]}",
                "start all ranks from one emitted package",
            )


def agree_on_tokens(axis: Axis, given: Sequence[Tensor | Sequence[int] | None]) -> None:
    """Raises UsageError on every rank of an axis where one of them was given other tensors than the first."""
    like = next(t for t in given if isinstance(t, Tensor))
    if axis.size == 1 or like.is_meta:
        return
    marks = torch.stack([mark_of(t, like.device) for t in given])
    found = torch.stack(axis.gathered(marks)).flatten(1).tolist()
    if others := [n for n, m in enumerate(found) if m != found[0]]:
        ranks = distributed.get_process_group_ranks(axis.group)
        shapes = {ranks[n]: found[n][1 : 1 + found[n][0]] for n in (0, others[0])}
        shown = " and ".join(f"{shape} on rank {rank}" for rank, shape in shapes.items())
        raise UsageError(
            f"{named([ranks[n] for n in others])} got other tokens than rank {ranks[0]}: {shown}",
            f"give ranks that differ along {axis.name} the same batch, and other ones along dp alone",
        )


def everywhere(values: Sequence[int], device_mesh: DeviceMesh) -> list[list[int]]:
    """What each rank of a mesh has, in the order of the mesh; all of one length."""
    found = torch.tensor(values, dtype=torch.int64, device=device_mesh.device_type)[None]
    for dim in reversed(range(device_mesh.ndim)):
        parts = [torch.empty_like(found) for _ in range(device_mesh.size(dim))]
        distributed.all_gather(parts, found, group=device_mesh.get_group(dim))
        found = torch.cat(parts)
    rows: list[list[int]] = found.tolist()
    return rows


def mark(text: str) -> int:
    """A number that tells texts apart."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def named(ranks: Sequence[int]) -> str:
    """Ranks for a message."""
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def mark_of(given: Tensor | Sequence[int] | None, device: torch.device) -> Tensor:
    """[dims, up to three sizes, checksum] of integers; sums wrap, and places count."""
    if given is None:
        return torch.full((5,), -1, device=device)
    t = torch.as_tensor(given, device=device)
    sizes = [*t.shape[:3], *(0,) * (3 - min(3, t.dim()))]
    flat = t.reshape(-1).to(torch.int64)
    places = torch.arange(1, flat.numel() + 1, device=device) * 0x5851F42D4C957F2D
    total = ((flat + 1) * places).sum()
    return torch.cat((torch.tensor([min(3, t.dim()), *sizes], device=device), total[None]))
