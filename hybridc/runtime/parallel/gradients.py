"""Gradients that are right on every rank when backward returns: sums over ranks start while it still goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hybridc.runtime.errors import UsageError
from hybridc.runtime.parallel.buckets import Bucket, buckets_of, keep_once, sum_pieces
from hybridc.runtime.parallel.mesh import Mesh
from hybridc.runtime.parallel.parts import is_fsdp, is_sharded, local

if TYPE_CHECKING:
    from hybridc.runtime.module import LanguageModel

_engine: Any = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]


class Gradients:
    """Sums a model's gradients over its mesh, within each backward.

    Over dp, gradients of replicated parameters fill buckets in a fixed order, the last parameters first, and a bucket
    is sent as soon as it and all before it are full; FSDP sums those of sharded ones. Over tp, pieces that ranks share
    are summed at the end. What a `.grad` holds from an earlier backward has been summed and is not summed again:
    sums count it on one rank. Under `no_sync` gradients are only accumulated, as they are until the last of those
    backwards that `expect` tells of.
    """

    def __init__(self, model: LanguageModel, mesh: Mesh, bucket_bytes: int = 25 << 20) -> None:
        self.model, self.dp, self.tp, self.bucket_bytes = model, mesh.dp, mesh.tp, bucket_bytes
        self.buckets: list[Bucket] = []
        self._sent = 0
        self._expected = 1
        self._active = True
        self._open = False
        self._backward = -1
        self._handles: list[Any] = []
        self._nodes: list[Any] = []
        self._seen: object = None
        self._sharded = {name for name, p in model.named_parameters() if is_sharded(p)}
        self._new: set[int] = set()
        self._names: dict[int, str] = {}
        self._arrived: Counter[int] = Counter()
        self._shards = model.shards() if self.tp.size > 1 else {}
        self._over_tp: list[tuple[Tensor, Any]] = []
        model.register_forward_pre_hook(lambda *_: self._watch())
        if self._sharded and self.tp.size > 1:
            for block in filter(is_fsdp, (model.embed, *model.layers, model.head)):
                block.register_forward_hook(self._mark)
        self._watch()

    def expect(self, backwards: int) -> None:
        """From now until `finish`, which has to be called: each parameter gets this many gradients, and is summed when
        it has them all, or at the end."""
        self._watch()
        self._expected, self._open = backwards, True
        # at once: a schedule that makes weights' gradients by themselves calls no hooks
        for p in [*(p for bucket in self.buckets for p in bucket.parameters), *(p for p, _ in self._over_tp)]:
            self._is_new(p)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients on each rank; the next backward outside sums them with its own."""
        before, self._active = self._active, False
        self._fsdp(False)
        try:
            yield
        finally:
            self._active = before
            self._fsdp(before)

    def finish(self) -> None:
        """Sums what has not been summed, which after a plain backward is nothing. Every rank calls it."""
        if not self._open:
            return
        while self._sent < len(self.buckets):
            self._send()
        for bucket in self.buckets:
            bucket.wait()
        for p, _ in self._over_tp:
            self._is_new(p)
        if self._over_tp:
            sum_pieces(self._over_tp, self.tp)
        self._reset()

    def _reset(self) -> None:
        self._restart()
        self._expected, self._open = 1, False
        self._new.clear()

    def _restart(self) -> None:
        self._sent = 0
        self._arrived.clear()
        for bucket in self.buckets:
            bucket.reset()

    def _fsdp(self, sync: bool) -> None:
        for module in self.model.modules():
            if is_fsdp(module):
                module.set_requires_gradient_sync(sync, recurse=False)  # type: ignore[operator]

    # --- what backward calls ---------------------------------------------------------------------------------------

    def _before(self, p: Tensor, bucket: Bucket | None) -> None:
        """A gradient is about to be added to a parameter's."""
        self._enter()
        if bucket is not None and bucket.sent is not None:
            raise UsageError(
                "a parameter gets a gradient after its gradients were summed over dp",
                "tell `model.gradients.expect` how many backwards there are",
            )
        self._is_new(p)

    def _after(self, p: Tensor, bucket: Bucket) -> None:
        """A parameter has got a gradient."""
        if not self._active:
            return
        self._arrived[id(p)] += 1
        if self._arrived[id(p)] == self._expected:
            bucket.left -= 1
            while self._sent < len(self.buckets) and not self.buckets[self._sent].left:
                self._send()

    def _is_new(self, p: Tensor) -> None:
        if id(p) not in self._new:
            self._new.add(id(p))
            keep_once(p, self._shards.get(self._names[id(p)]), self.dp, self.tp)

    def _send(self) -> None:
        bucket = self.buckets[self._sent]
        for p in bucket.parameters:
            self._is_new(p)
        bucket.send(self.dp)
        self._sent += 1

    def _mark(self, block: nn.Module, args: object, out: object) -> None:
        """A block's output tells when a backward gets to it, which is before FSDP adds to its gradients."""
        if isinstance(out, Tensor) and out.requires_grad:
            out.register_hook(lambda _: self._begin())

    def _begin(self) -> None:
        self._enter()
        for p, _ in self._over_tp:
            if is_sharded(p):
                self._is_new(p)

    def _enter(self) -> None:
        """Once in each backward: what is to be done at its end."""
        task = torch._C._current_graph_task_id()
        if task == self._backward:
            return
        if self._expected == 1:
            self._restart()  # an earlier one may have failed halfway
        self._backward = task
        self._open = self._open or self._active
        # FSDP has a callback too, which may be queued later, and comes first so
        _engine.queue_callback(lambda: _engine.queue_callback(self._ended))

    def _ended(self) -> None:
        self._backward = -1
        if self._active and self._expected == 1:
            self.finish()

    # --- which parameters there are --------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Hooks the parameters that there are now: `to_empty`, casts and `requires_grad_` change them."""
        if not torch.is_grad_enabled():
            return
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        seen = [self.bucket_bytes, *((id(p), p.dtype, p.device) for _, p in named)]
        gathered = any(name in self._sharded and not is_sharded(p) for name, p in named)
        if seen == self._seen or gathered:
            return
        self._seen = seen
        for handle in self._handles:
            handle.remove()
        self._names = {id(p): name for name, p in named}
        plain = [p for _, p in named if not is_sharded(p)]
        self.buckets = buckets_of(plain, self.bucket_bytes) if self.dp.size > 1 else []
        self._reset()
        found = {id(p): bucket for bucket in self.buckets for p in bucket.parameters}
        shards = ((p, self._shards.get(name)) for name, p in named)
        tp = self.tp
        self._over_tp = [(p, s) for p, s in shards if s is not None and s.repeated(local(p), tp.rank, tp.size)]
        watched = {id(p) for p, _ in self._over_tp} | found.keys()
        self._handles, self._nodes = [], []
        for p in plain:
            if id(p) in watched:
                node: Any = get_gradient_edge(p).node
                self._nodes.append(node)
                bucket = found.get(id(p))
                self._handles.append(node.register_prehook(partial(self._hook, p, bucket)))
                if bucket is not None:
                    self._handles.append(p.register_post_accumulate_grad_hook(partial(self._after, bucket=bucket)))

    def _hook(self, p: Tensor, bucket: Bucket | None, _: object) -> None:
        self._before(p, bucket)
