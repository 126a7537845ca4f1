"""Runs an emitted model without a device and without numbers, to see what it launches in training and generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hybridc.ahead.launches import Launch, Place, recorded
from hybridc.ahead.ranks import imagine, run
from hybridc.runtime.context import PackedSeq
from hybridc.runtime.kernels.device import Target, assumed
from hybridc.runtime.module import LanguageModel

TARGETS = {
    "cuda:sm80": Target(80, 108),
    "cuda:sm90": Target(90, 132),
    "cuda:sm100": Target(100, 148),
}
"""By the name that `--target` has: A100, H100 SXM and B200, from NVIDIA's architecture whitepapers."""

ROWS, TOKENS = 2, 4096
"""A batch of training: rows of so many tokens; and, in a second run, the same tokens as documents of uneven lengths."""

PROMPT = 1003
"""Tokens of a prompt: no multiple of anything, as a prompt's length is."""

BATCH = 16
"""Rows of a batch in decoding; a single row is run too."""


class Unreadable(Exception):
    """The module asked for a number that only a device has."""


def dry_run(model: LanguageModel, target: Target) -> list[tuple[Launch, tuple[Place, ...]]]:
    """The launches of `model`, which is on the meta device, each form once with the places that it comes from: a step
    of training, one with packed documents, a prompt and a step of decoding. A model of a mesh is run as its first rank.

    They are those of the sizes above: other ones differ in no more than which numbers are 1 or multiples of 16. Raises
    Unreadable where host code needs a tensor's numbers.
    """
    if model.MESH:
        imagine(model)
    with assumed(target), without_numbers(), recorded(model) as recorder:
        head: Any = model.head
        if hasattr(head, "loss"):
            head.loss = recorder.inside(head, head.loss)
        try:
            for seq in (None, PackedSeq([0, 1000, TOKENS, ROWS * TOKENS])):
                recorder.run = "forward"
                loss: Any = run(model, _ids(ROWS, TOKENS), labels=_ids(ROWS, TOKENS), seq=seq).loss
                loss.backward()
                model.zero_grad()
            with torch.no_grad():
                cache = model.new_cache(1, 2 * PROMPT)
                recorder.run = "prompt"
                run(model, _ids(1, PROMPT), cache=cache)
                recorder.run = "step"
                run(model, _ids(1, 1), cache=cache)
                run(model, _ids(BATCH, 1), cache=model.new_cache(BATCH, PROMPT))
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error).lower():
                raise
            raise Unreadable(str(error).partition("\n")[0]) from error
    return recorder.launches


def _ids(rows: int, tokens: int) -> Tensor:
    return torch.empty(rows, tokens, dtype=torch.int64, device="meta")


class _Answers(TorchFunctionMode):
    """What torch does not know without numbers, and the module needs no number of."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if getattr(func, "__name__", "") == "bincount" and args[0].device.type == "meta":
            return torch.empty(given["minlength"], dtype=torch.int64, device="meta")
        return func(*args, **given)


@contextmanager
def without_numbers() -> Iterator[None]:
    """Makes torch work on the meta device where it does not: there is no autocast, and counts have a shape."""
    enabled, region = torch.is_autocast_enabled, torch.autocast

    def is_enabled(kind: str | None = None) -> bool:
        return False if kind == "meta" else enabled() if kind is None else enabled(kind)

    def autocast(kind: str, *args: Any, **given: Any) -> Any:
        return nullcontext() if kind == "meta" else region(kind, *args, **given)

    with ExitStack() as stack:
        changes: tuple[tuple[str, Callable[..., Any]], ...] = (
            ("is_autocast_enabled", is_enabled),
            ("autocast", autocast),
        )
        for name, new in changes:
            stack.callback(setattr, torch, name, getattr(torch, name))
            setattr(torch, name, new)
        stack.enter_context(_Answers())
        yield
