"""How many bytes a layer of an emitted model writes to memory, from a run without a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hybridc.ahead.dry_run import without_numbers
from hybridc.ahead.launches import recorded
from hybridc.runtime.kernels.device import Target, assumed
from hybridc.runtime.module import LanguageModel

ROWS, TOKENS = 2, 4096
"""Rows of so many tokens that are counted on."""


def written(model: LanguageModel, target: Target) -> dict[str, float]:
    """Bytes that a forward without gradients writes in one layer of each class, per token.

    `model` is on the meta device. A tensor that an op or a kernel's caller makes counts with its elements once, and
    what is written in place counts again. What kernels keep in registers and shared memory, as torch's attention does
    its scores, is not seen. Weights are quantized in an earlier forward, since that is done once for each time that
    they change.
    """
    ids = torch.empty(ROWS, TOKENS, dtype=torch.int64, device="meta")
    counter = _Counter()
    found: dict[str, float] = {}
    with assumed(target), without_numbers(), recorded(model), torch.no_grad(), _OneKernel():
        model(ids)
        for layer in model.layers:
            name = type(layer).__name__
            if name not in found:
                found[name] = 0.0
                _watch(layer, name, counter, found)
        model(ids)
    return {name: count / (ROWS * TOKENS) for name, count in found.items()}


def _watch(layer: torch.nn.Module, name: str, counter: _Counter, found: dict[str, float]) -> None:
    """Counts what one layer writes."""
    forward = layer.forward

    def watched(*args: Any, **given: Any) -> Any:
        counter.bytes = 0
        with counter:
            out = forward(*args, **given)
        found[name] = float(counter.bytes)
        return out

    layer.forward = watched


class _OneKernel(TorchFunctionMode):
    """Torch's attention as the one kernel that it is on a GPU: the meta device would compute all scores."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            query, _, value = args[:3]
            return query.new_empty(*query.shape[:-1], value.shape[-1])
        return func(*args, **(kwargs or {}))


class _Counter(TorchDispatchMode):
    """Adds up the bytes of tensors that are made or changed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self.unwritten: set[int] = set()
        self.held: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        out = func(*args, **given)
        inputs = [t for t in tree_leaves((args, given)) if isinstance(t, Tensor)]
        known = {_storage(t) for t in inputs}
        for made in tree_leaves(out):
            if isinstance(made, Tensor) and _storage(made) not in known:
                known.add(_storage(made))
                self.bytes += made.untyped_storage().nbytes()
                self.held.append(made)  # so that no other one gets its place
                if func is torch.ops.aten.empty.memory_format:
                    self.unwritten.add(_storage(made))
        for t, argument in zip(args, func._schema.arguments, strict=False):
            changed = argument.alias_info is not None and argument.alias_info.is_write
            if changed and isinstance(t, Tensor):
                if _storage(t) in self.unwritten:
                    self.unwritten.discard(_storage(t))
                else:
                    self.bytes += t.numel() * t.element_size()
        return out


def _storage(t: Tensor) -> int:
    return int(t.untyped_storage()._cdata)
