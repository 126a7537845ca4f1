"""The base of emitted models: initialisation by name, parameters that stay fp32, caches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from hybridc.runtime.cache import Cache
from hybridc.runtime.errors import UsageError


class LanguageModel(nn.Module):
    """What an emitted `Model` inherits. It has `embed`, `layers` and `head`."""

    layers: nn.ModuleList

    def fp32_parameters(self) -> list[tuple[nn.Module, str]]:
        """(module, name) of each parameter that stays fp32 whatever the model is cast to."""
        found = []
        for module in self.modules():
            for path in getattr(type(module), "FP32", ()):
                owner, _, name = path.rpartition(".")
                found.append((module.get_submodule(owner), name))
        return found

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As torch's, but parameters named in a submodule's `FP32` keep dtype and value under casts."""
        kept = [(m, n, m._parameters[n]) for m, n in self.fp32_parameters()]
        before = [(m, n, p, p.detach()) for m, n, p in kept if p is not None]
        super()._apply(fn, recurse)
        for module, name, _, value in before:
            now = module._parameters[name]
            if now is not None and now.dtype != value.dtype and now.dtype.is_floating_point:
                now.data = value.to(now.device)
        return self

    @torch.no_grad()
    def init_weights(self, seed: int = 0) -> None:
        """Fills every parameter as its class's `INIT` says, from a generator seeded by `seed` and the parameter's
        name."""
        done: set[int] = set()
        for prefix, module in self.named_modules():
            for path, fill in getattr(type(module), "INIT", {}).items():
                parameter = module.get_parameter(path)
                if id(parameter) in done:
                    continue
                done.add(id(parameter))
                name = f"{prefix}.{path}" if prefix else path
                digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
                fill(parameter, generator)

    @property
    def weights_version(self) -> int:
        """A number that changes whenever a parameter is written in place or replaced."""
        return hash(tuple((id(p), p._version) for p in self.parameters()))

    def new_cache(self, batch: int, max_len: int) -> Cache:
        """An empty cache for `batch` sequences of up to `max_len` tokens each."""
        if batch < 1 or max_len < 1:
            raise UsageError(f"a cache of {batch} rows of {max_len} tokens", "give a batch and max_len of 1 or more")
        weight = next(self.parameters())
        dtype = next((p.dtype for p in self.embed.parameters()), weight.dtype)  # type: ignore[operator, union-attr]
        layers: list[dict[str, Any]] = []
        for block in self.layers:
            layers.append(
                {
                    path: module.new_state(batch, max_len, weight.device, dtype)
                    for path, module in block.named_modules()
                    if path and hasattr(module, "new_state")
                }
            )
        return Cache(layers, batch, max_len, lambda: self.weights_version)
