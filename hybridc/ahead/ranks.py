"""A mesh whose other ranks are not there, for modules that are run without a device: shapes are those of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hybridc.runtime.cache import Cache
from hybridc.runtime.context import Context, Output, PackedSeq
from hybridc.runtime.module import LanguageModel
from hybridc.runtime.parallel.axis import Axis
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.place import place


class Imagined(Axis):
    """An axis over which nothing is sent."""

    def gathered(self, x: Tensor) -> list[Tensor]:
        """As many of x as there are ranks."""
        return [x] * self.size

    def summed(self, x: Tensor) -> Tensor:
        """Of x's shape."""
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    most = summed

    def scattered(self, x: Tensor) -> Tensor:
        """[n] -> [n / ranks]."""
        return x.new_empty(x.shape[0] // self.size)

    def exchanged(self, x: Tensor) -> Tensor:
        """Of x's shape."""
        return torch.empty_like(x)


def imagine(model: LanguageModel) -> None:
    """Puts a model on the mesh that it was compiled for, as its first rank."""
    place(model, Mesh(None, {name: Imagined(name, size) for name, size in model.MESH.items()}))


def run(
    model: LanguageModel,
    ids: Tensor,
    *,
    labels: Tensor | None = None,
    seq: PackedSeq | None = None,
    cache: Cache | None = None,
) -> Output:
    """A forward; of a model in pipeline stages, of all of them, one after the other."""
    if model.MESH.get("pp", 1) == 1:
        made: Output = model(ids, labels=labels, seq=seq, cache=cache)
        return made
    staged: Any = model
    ctx = Context(ids, seq=seq, cache=cache, mesh=model.mesh)
    x, *_ = staged.stage(range(len(model.layers)), ctx)
    made = staged.output(ctx, x, labels)
    return made
