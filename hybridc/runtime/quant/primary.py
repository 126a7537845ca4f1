"""FP8 primary weights: a net whose linear maps hold FP8 alone, and fp32 masters for the optimizer.

Training is that of FP8Linear with fp32 weights, to the last bit: those are quantized once a step, of the same numbers
and in the same blocks. What changes is where the fp32 numbers are: with the optimizer, which may keep them on another
device, and not in the net. Bytes of the net for each number of a weight: 1 with square blocks (`block128`, `tensor`,
`delayed`), 2 with others (`row`, `mx`), whose gradients need the weight quantized along its other dimension too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hybridc.runtime.errors import UsageError
from hybridc.runtime.quant.held import restored
from hybridc.runtime.quant.linear import SCALES, FP8Linear


@dataclass
class Primary:
    """A weight that is stored in FP8: its name in the net, and the linear maps that share it."""

    name: str
    linears: list[FP8Linear]

    @property
    def weight(self) -> nn.Parameter:
        """Its data."""
        return self.linears[0].weight

    def dequantize(self) -> Tensor:
        """The weight in fp32."""
        encoded = self.linears[0].encoded()
        assert encoded is not None
        return restored(encoded.data, encoded.scale, self.linears[0].product.recipe.weight).dequantize()

    def write(self, weight: Tensor) -> None:
        """Quantizes a weight into place."""
        product = self.linears[0].product
        with torch.no_grad():
            encoded = product.encode(weight.to(self.weight.device), turned=not product.recipe.turns)
        product.quantized += 1
        for linear in self.linears:
            linear.store(encoded)


def store_in_fp8(net: nn.Module) -> list[Primary]:
    """Stores weights of a net's FP8Linears in FP8, in place, and gives all that are stored so.

    A weight that other modules read too, such as an embedding's, or linear maps of other recipes, stays as it is; so
    does one that linear maps of the delayed recipe share, since each has its own history. Raises UsageError for weights
    that tensor-parallel ranks have between them: whole state dicts would have the scales of one rank.
    """
    uses: dict[int, list[tuple[nn.Module, str]]] = defaultdict(list)
    for module in net.modules():
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False):
            uses[id(p)].append((module, name))
    found = []
    for name, p in net.named_parameters():
        linears = [m for m, kind in uses[id(p)] if isinstance(m, FP8Linear) and kind == "weight"]
        if len(linears) < len(uses[id(p)]) or not linears:
            continue
        if any(m.product.across.cut for m in linears):
            raise UsageError(
                f"tensor-parallel ranks have {name} between them, and FP8 weights are stored whole",
                "keep the weights as they are: they are quantized once a step, or train with tp = 1",
            )
        recipes = {m.product.recipe for m in linears}
        if len(recipes) == 1 and (len(linears) == 1 or not linears[0].product.recipe.history):
            if linears[0].weight_scale is None:
                _store(linears, p)
            found.append(Primary(name, linears))
    return found


class PrimaryWeights:
    """The fp32 masters of a net whose FP8Linears' weights are stored in FP8, and its other parameters as they are.

        masters = PrimaryWeights(net)
        optimizer = torch.optim.AdamW(masters.parameters())
        net(ids, labels=ids).loss.backward()
        masters.step(optimizer)

    The net's weights become FP8 in place (see `store_in_fp8`). Masters start as its weights, or as what FP8 weights of
    a net that has such already stand for.
    """

    def __init__(self, net: nn.Module) -> None:
        before = {name: p.detach() for name, p in net.named_parameters()}
        self.net = net
        self.primaries = {p.name: p for p in store_in_fp8(net)}
        self.masters: dict[str, nn.Parameter] = {}
        for name, primary in self.primaries.items():
            own = primary.dequantize() if before[name].dtype == primary.weight.dtype else before[name]
            master = own.to(torch.float32, copy=True)
            self.masters[name] = nn.Parameter(master, requires_grad=primary.weight.requires_grad)
        self._versions = {name: p.weight._version for name, p in self.primaries.items()}

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The net's parameters in their order, masters in place of what is stored in FP8."""
        for name, p in self.net.named_parameters():
            yield name, self.masters.get(name, p)

    def parameters(self) -> Iterator[nn.Parameter]:
        """What an optimizer takes."""
        return (p for _, p in self.named_parameters())

    def gather(self) -> None:
        """Hands the gradients of FP8 weights to the masters, for what reads them before the step (a clipped norm).

        Raises UsageError where FP8 weights were written since the masters last were: the two say different things.
        """
        for name, primary in self.primaries.items():
            self._check(name)
            grad, master = primary.weight.grad, self.masters[name]
            if grad is None:
                continue
            grad = grad.to(master.device, torch.float32)
            master.grad = grad if master.grad is None else master.grad + grad
            primary.weight.grad = None

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Gathers gradients, lets the optimizer change the masters, and writes FP8 weights. Masters' gradients are gone
        then, as FP8 weights' are; those of other parameters stay until `zero_grad`. Raises UsageError for an optimizer
        of FP8 weights themselves."""
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if held & {id(p.weight) for p in self.primaries.values()}:
            raise UsageError(
                "the optimizer holds FP8 weights in place of their masters", "make it of `masters.parameters()`"
            )
        self.gather()
        optimizer.step()
        self.write()
        for master in self.masters.values():
            master.grad = None

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.net.zero_grad(set_to_none=True)
        for master in self.masters.values():
            master.grad = None

    def write(self) -> None:
        """Writes FP8 weights of the masters."""
        for name, primary in self.primaries.items():
            primary.write(self.masters[name].detach())
            self._versions[name] = primary.weight._version

    def read(self) -> None:
        """Makes the masters what FP8 weights stand for, such as after the net has loaded a file without masters."""
        with torch.no_grad():
            for name, primary in self.primaries.items():
                self.masters[name].copy_(primary.dequantize())
                self._versions[name] = primary.weight._version

    def state_dict(self) -> dict[str, Tensor]:
        """The masters by their names in the net: fp32, to be saved beside the net's own state."""
        return {name: master.detach() for name, master in self.masters.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Loads masters, and writes FP8 weights of them. Raises UsageError for names or shapes of another net."""
        other = sorted(set(state) ^ set(self.masters))
        other += sorted(n for n in set(state) & set(self.masters) if state[n].shape != self.masters[n].shape)
        if other:
            raise UsageError(f"masters of another net: {', '.join(other[:5])}", "load those that this net has saved")
        with torch.no_grad():
            for name, master in self.masters.items():
                master.copy_(state[name])
        self.write()

    def _check(self, name: str) -> None:
        if self.primaries[name].weight._version != self._versions[name]:
            raise UsageError(
                f"{name} was written in FP8 after its master was",
                "load the masters with load_state_dict, or make them of the FP8 weights with read()",
            )


def _store(linears: list[FP8Linear], weight: Tensor) -> None:
    """Stores a weight that linear maps share in FP8."""
    product = linears[0].product
    with torch.no_grad():
        encoded = product.encode(weight, turned=not product.recipe.turns)
    product.quantized += 1
    p = nn.Parameter(encoded.data.clone(memory_format=torch.contiguous_format), requires_grad=weight.requires_grad)
    for linear in linears:
        linear.weight = p
        for name, t in zip(SCALES, encoded[1:], strict=True):
            linear.register_buffer(name, None if t is None else t.clone(memory_format=torch.contiguous_format))
