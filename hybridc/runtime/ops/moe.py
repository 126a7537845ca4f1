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


def softmax_topk(logits: Tensor, k: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """The k most probable experts of each token and their probabilities, summing to 1 if `renormalize`.

    logits [..., experts] -> weights [..., k] fp32 and ids [..., k] int64, the most probable first.
    """
    weights, ids = logits.float().softmax(-1).topk(k, dim=-1)
    return (weights / weights.sum(-1, keepdim=True) if renormalize else weights), ids


class Experts(nn.Module):
    """`experts` feed-forward layers; each token runs through those that it chose.

    Parameters: gate_up [experts, 2 hidden, dim] (gate rows first) or up [experts, hidden, dim], down [experts, dim,
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

        Tokens are sorted by expert; an expert without tokens costs nothing and gets a zero gradient.
        """
        flat = x.reshape(-1, x.shape[-1])
        chosen = ids.reshape(-1)
        order = chosen.argsort(stable=True)
        tokens = order // ids.shape[-1]
        counts = torch.bincount(chosen, minlength=self.down.shape[0]).tolist()
        first = self.gate_up if self.gated else self.up
        outputs = []
        for expert, part in enumerate(flat[tokens].split(counts)):
            if counts[expert]:
                inside = F.linear(part, first[expert])
                if self.gated:
                    gate, up = inside.chunk(2, dim=-1)
                    inside = self.act(gate) * up
                else:
                    inside = self.act(inside)
                outputs.append(F.linear(inside, self.down[expert]))
        if not outputs:
            return x * 0
        scaled = torch.cat(outputs) * weights.reshape(-1)[order, None]
        return torch.zeros_like(flat).index_add(0, tokens, scaled).view_as(x)
