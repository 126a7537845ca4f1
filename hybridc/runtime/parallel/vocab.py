"""The two ends of a language model whose vocabulary ranks have between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hybridc.runtime.parallel.axis import Axis


class VocabEmbedding(nn.Embedding):
    """A rank's rows of an embedding. Ids of other ranks' rows give zeros: what the ranks have adds up to the rows."""

    tp = Axis("tp")

    def forward(self, ids: Tensor) -> Tensor:
        """ids [...] int64 of the whole vocabulary -> [..., dim]."""
        local = ids - self.tp.rank * self.num_embeddings
        theirs = (local < 0) | (local >= self.num_embeddings)
        rows = F.embedding(local.masked_fill(theirs, 0), self.weight)
        return rows.masked_fill(theirs.unsqueeze(-1), 0.0)


def vocab_cross_entropy(logits: Tensor, targets: Tensor, vocab: int, axis: Axis) -> Tensor:
    """Mean of -log softmax(logits)[target] over targets other than -100, in fp32, where each rank has the logits of its
    ids: the ranks send three numbers a token (Shoeybi et al., 2019).

    logits [T, ⌈vocab / ranks⌉], targets [T] int64 of the whole vocabulary.
    """
    wide, start = logits.float(), axis.rank * logits.shape[1]
    real = vocab - start
    if real < logits.shape[1]:
        fillers = torch.arange(logits.shape[1], device=logits.device) >= real
        wide = wide.masked_fill(fillers, -torch.inf)
    largest = axis.most(wide.detach().amax(-1))
    wide = wide - largest[:, None]
    total = axis.all_reduce(wide.exp().sum(-1))
    local = targets - start
    mine = (local >= 0) & (local < logits.shape[1])
    chosen = wide.gather(1, local.where(mine, 0)[:, None])[:, 0]
    chosen = axis.all_reduce(chosen.where(mine, 0.0))
    left_out = targets == -100
    return (total.log() - chosen).masked_fill(left_out, 0.0).sum() / (~left_out).sum().clamp(min=1)


def whole_logits(logits: Tensor, vocab: int, axis: Axis) -> Tensor:
    """The logits of all ids, of what the ranks have: [..., ⌈vocab / ranks⌉] -> [..., vocab]. Gradients go back to the
    ranks that the logits are of."""
    gathered: Tensor = axis.tokens(logits.shape[1]).all_gather(logits, dim=logits.dim() - 1, back="slice")
    return gathered[..., :vocab]
