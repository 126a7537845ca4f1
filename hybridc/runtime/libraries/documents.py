"""Documents of a packed row in the forms that libraries take them in, made once a forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hybridc.runtime.context import Context


def offsets(ctx: Context, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """Where documents start in the packed row, and its end: [documents + 1], or None for plain rows."""
    if ctx.borders is None:
        return None
    return ctx.plan(("offsets", dtype), lambda: torch.tensor(ctx.borders, dtype=dtype, device=device))


def numbers(ctx: Context, device: torch.device) -> Tensor:
    """Each token's document, int32 [1, T]."""

    def make() -> Tensor:
        counts = torch.tensor(ctx.lengths, device=device)
        rows = torch.arange(len(ctx.lengths), dtype=torch.int32, device=device)
        return rows.repeat_interleave(counts, output_size=sum(ctx.lengths))[None]

    return ctx.plan("document numbers", make)


def trained(*tensors: Tensor | None) -> bool:
    """Whether a backward may follow."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
