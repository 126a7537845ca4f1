"""Cross entropy over tokens and the losses of routers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def token_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of -log softmax(logits)[target] over targets other than -100, in fp32; 0 with a graph where there is none.

    logits [T, vocab], targets [T] int64.
    """
    total = F.cross_entropy(logits.float(), targets, ignore_index=-100, reduction="sum")
    count = (targets != -100).sum()
    return total / count.clamp(min=1)


class RouterSums:
    """What the losses of routers are made of: sums over the tokens of all layers that share a loss.

    `counts` [experts]: how often each was chosen; `probabilities` [experts]: of the softmax of the logits; `squares`:
    of the log-sum-exp; `rows`: tokens. They add up over layers, over ranks and over pipeline stages.
    """

    def __init__(self, counts: Tensor, probabilities: Tensor, squares: Tensor, rows: Tensor) -> None:
        self.counts, self.probabilities, self.squares, self.rows = counts, probabilities, squares, rows

    @classmethod
    def of(cls, logits: Tensor, ids: Tensor) -> RouterSums:
        """The sums of logits [T, experts] and the chosen ids [T, k]."""
        wide = logits.float()
        counts = torch.bincount(ids.reshape(-1), minlength=logits.shape[1]).to(wide.dtype)
        rows = wide.new_tensor(float(logits.shape[0]))
        return cls(counts, wide.softmax(-1).sum(0), wide.logsumexp(-1).square().sum(), rows)

    @classmethod
    def unpacked(cls, packed: Tensor) -> RouterSums:
        """The sums of what `packed` made."""
        experts = (packed.shape[0] - 2) // 2
        counts, probabilities, rest = packed.split((experts, experts, 2))
        return cls(counts.detach(), probabilities, rest[0], rest[1].detach())

    def packed(self) -> Tensor:
        """All in one vector [2 experts + 2]."""
        return torch.cat((self.counts, self.probabilities, self.squares[None], self.rows[None]))

    def load_balancing_loss(self) -> Tensor:
        """experts x Σ over experts and choices of (share of tokens) x (mean probability) (Fedus et al., 2021, equation
        4)."""
        rows = self.rows.clamp(min=1)
        return self.counts.shape[0] * (self.counts / rows * self.probabilities / rows).sum()

    def z_loss(self) -> Tensor:
        """Mean squared log-sum-exp of router logits (Zoph et al., 2022, equation 5)."""
        return self.squares / self.rows.clamp(min=1)
