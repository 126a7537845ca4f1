"""Mixtures of experts: choosing, and running tokens through what they chose."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}

ROWS = 4
"""Rows of an expert's product come in multiples of this."""


def softmax_topk(logits: Tensor, k: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """The k most probable experts of each token and their probabilities, summing to 1 if `renormalize`.

    logits [..., experts] -> weights [..., k] fp32 and ids [..., k] int64, the most probable first.
    """
    weights, ids = logits.float().softmax(-1).topk(k, dim=-1)
    return (weights / weights.sum(-1, keepdim=True) if renormalize else weights), ids


class Experts(nn.Module):
    """`experts` feed-forward layers; each token runs through those that it chose.

    Parameters: gate_up [experts, 2 hidden, dim] (gate rows first) or up [experts, hidden, dim], and down [experts, dim,
    hidden].
    """

    def __init__(self, experts: int, dim: int, hidden: int, *, act: str = "silu", gated: bool = True) -> None:
        super().__init__()
        if gated:
            self.gate_up = nn.Parameter(torch.empty(experts, 2 * hidden, dim))
        else:
            self.up = nn.Parameter(torch.empty(experts, hidden, dim))
        self.down = nn.Parameter(torch.empty(experts, dim, hidden))
        self.act, self.gated = ACTIVATIONS[act], gated

    def forward(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """x [..., dim], weights and ids [..., k] -> Σ over the choices of weight · expert(x), [..., dim].

        Tokens are sorted by expert; an expert without tokens costs nothing and gets a zero gradient. The sum over the
        choices is taken in their order, so the result and its gradients are the same in every run.
        """
        flat = x.reshape(-1, x.shape[-1])
        tokens, places, counts = _sorted_by_expert(ids.reshape(-1, ids.shape[-1]), self.down.shape[0])
        first = self.gate_up if self.gated else self.up
        # unbind, since the gradient of an index is as large as all experts, for each of them
        experts = zip(flat[tokens].split(counts), first.unbind(), self.down.unbind(), strict=True)
        outputs = [F.linear(self._inside(F.linear(part, up)), down) for part, up, down in experts if part.shape[0]]
        if not outputs:
            return x * 0
        chosen = torch.cat(outputs)[places]
        return (chosen * weights.reshape(*places.shape, 1)).sum(1).view_as(x)

    def _inside(self, inside: Tensor) -> Tensor:
        if not self.gated:
            return self.act(inside)
        gate, up = inside.chunk(2, dim=-1)
        return self.act(gate) * up


def _sorted_by_expert(ids: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """ids [T, k] -> the tokens [rows] that the experts' products take, the row [T, k] of each choice, and the rows of
    each expert.

    Products of matrices round a row differently by the number of rows, unless that is a multiple of ROWS: fillers (of
    token 0, read by nobody) make it one, so that what one document chooses changes no bit of another.
    """
    chosen = ids.reshape(-1)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=experts)
    rows = counts if ids.shape[0] == 1 else (counts + (ROWS - 1)) // ROWS * ROWS
    fillers = (rows - counts).cumsum(0) - (rows - counts)
    sorted_rows = torch.arange(chosen.shape[0], device=ids.device) + fillers[chosen[order]]
    sizes = rows.tolist()
    tokens = torch.zeros(sum(sizes), dtype=torch.int64, device=ids.device)
    tokens[sorted_rows] = order // ids.shape[1]
    places = torch.empty_like(sorted_rows)
    places[order] = sorted_rows
    return tokens, places.view(ids.shape), sizes
