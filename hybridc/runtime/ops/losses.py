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


def load_balancing_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """experts x Σ over experts and choices of (share of tokens) x (mean probability) (Fedus et al., 2021, equation 4).

    logits [T, experts], ids [T, k]: the tokens of all layers that share the loss.
    """
    if not logits.shape[0]:
        return logits.sum()
    experts = logits.shape[1]
    probabilities = logits.float().softmax(-1).mean(0)
    counts = torch.bincount(ids.reshape(-1), minlength=experts).to(probabilities.dtype)
    return experts * (counts / ids.shape[0] * probabilities).sum()


def router_z_loss(logits: Tensor) -> Tensor:
    """Mean squared log-sum-exp of router logits [T, experts] (Zoph et al., 2022, equation 5)."""
    if not logits.shape[0]:
        return logits.sum()
    return logits.float().logsumexp(-1).square().mean()
