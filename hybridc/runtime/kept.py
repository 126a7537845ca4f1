"""What casts, moves and loads keep of a model: parameters that stay fp32, and those that are one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from torch import Tensor, nn
from torch.autograd.graph import increment_version


class Kept(nn.Module):
    """A module whose submodules name in `FP32` what stays fp32, and which may have ties."""

    def tie_weights(self) -> None:
        """Makes the parameters that the spec ties one; emitted models with such parameters define it."""

    def fp32_parameters(self) -> list[tuple[nn.Module, str]]:
        """(module, name) of each parameter that stays fp32 whatever the model is cast to."""
        found = []
        for module in self.modules():
            for path in getattr(type(module), "FP32", ()):
                owner, _, name = path.rpartition(".")
                holder = module.get_submodule(owner)
                if name in holder._parameters:  # else an adapter library has put a module of its own around it
                    found.append((holder, name))
        return found

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As torch's, but parameters named in a submodule's `FP32` keep dtype and value under casts, and ties hold."""
        kept = []
        for module, name in self.fp32_parameters():
            p = module._parameters[name]
            if p is not None:
                kept.append((module, name, p.detach(), None if p.grad is None else p.grad.detach()))
        ties, dtypes = self._ties(), [(p, p.dtype) for p in self.parameters()]
        super()._apply(fn, recurse)
        for module, name, value, grad in kept:
            now = module._parameters[name]
            if now is not None and now.dtype != value.dtype and now.dtype.is_floating_point:
                now.grad = None
                now.data = value.to(now.device)
                now.grad = None if grad is None else grad.to(now.device)
        _tie(ties)
        # what is held of a parameter itself, whatever its address, is of other numbers after a cast
        increment_version([p for p, dtype in dtypes if p.dtype != dtype and not p.is_inference()])
        return self

    def _ties(self) -> list[list[tuple[nn.Module, str]]]:
        """Places (module, name) that hold the same parameter, the first one first. Those that `tie_weights` made, found
        as they are: an adapter library may have put modules of its own around them."""
        places: dict[int, list[tuple[nn.Module, str]]] = {}
        for module in self.modules():
            for name, p in module._parameters.items():
                if p is not None:
                    places.setdefault(id(p), []).append((module, name))
        return [same for same in places.values() if len(same) > 1]

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:  # fmt: skip
        """As torch's; with `assign` too, parameters that stay fp32 are widened and ties hold."""
        if assign:
            stay = {id(module._parameters[name]) for module, name in self.fp32_parameters()}
            for name, p in self.named_parameters(remove_duplicate=False):
                if id(p) in stay and name in state_dict:
                    state_dict = {**state_dict, name: state_dict[name].float()}
        ties = self._ties()
        result = super().load_state_dict(state_dict, strict, assign)
        _tie(ties)
        return result


def _tie(ties: list[list[tuple[nn.Module, str]]]) -> None:
    """Puts the first place's parameter into the others."""
    for (first, name), *others in ties:
        for module, other in others:
            module._parameters[other] = first._parameters[name]
