"""Mixtures of experts: choosing, and running tokens through what they chose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hybridc.runtime.ops.autocast import without_autocast
from hybridc.runtime.parallel.across import Across, Scaled

ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}

ROWS = 4
"""Rows of an expert's product come in multiples of this."""


@without_autocast
def router_logits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b in fp32: x [..., dim], weight [experts, dim], bias [experts] -> [..., experts]."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float())


def softmax_topk(logits: Tensor, k: int, **options: Any) -> tuple[Tensor, Tensor]:
    """The k experts of each token by the softmax of its logits; options and results as in `choose`."""
    return choose(logits.float().softmax(-1), k, **options)


def sigmoid_topk(logits: Tensor, k: int, **options: Any) -> tuple[Tensor, Tensor]:
    """The k experts of each token by the sigmoid of its logits; options and results as in `choose`."""
    return choose(logits.float().sigmoid(), k, **options)


def choose(
    scores: Tensor,
    k: int,
    *,
    renormalize: bool,
    eps: float = 0.0,
    bias: Tensor | None = None,
    groups: int = 1,
    top_groups: int = 1,
    scaling: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The k best of each token's scores, and these as weights, summing to `scaling` if `renormalize` (with `eps` in the
    sum), else times `scaling`.

    `bias` [experts] is added to scores for the choice alone; with `groups`, experts are chosen from the `top_groups`
    groups with the largest sums of their two best biased scores (DeepSeek-V3, 2024). scores [..., experts] ->
    weights [..., k] fp32 and ids [..., k] int64, the best first.
    """
    ranked = scores if bias is None else scores + bias
    if top_groups < groups:
        grouped = ranked.unflatten(-1, (groups, -1))
        best = grouped.topk(2, dim=-1).values.sum(-1).topk(top_groups, dim=-1).indices
        out = torch.ones(grouped.shape[:-1], dtype=torch.bool, device=scores.device).scatter(-1, best, False)
        ranked = grouped.masked_fill(out[..., None], -torch.inf).flatten(-2)
    if ranked is scores:
        weights, ids = scores.topk(k, dim=-1)
    else:
        ids = ranked.topk(k, dim=-1).indices
        weights = scores.gather(-1, ids)
    if renormalize:
        total = weights.sum(-1, keepdim=True)
        weights = weights / (total + eps if eps else total)
    return (weights * scaling if scaling != 1.0 else weights), ids


class Experts(Scaled, nn.Module):
    """`experts` feed-forward layers; each token runs through those that it chose.

    Gated: down(act(min(gate, limit)) · (clamp(up, ±limit) + up_offset)), with x sigmoid(beta x) as silu. Parameters:
    gate_up [experts, 2 hidden, dim] (gate rows first) or up [experts, hidden, dim], down [experts, dim, hidden], and
    with `bias` gate_up_bias or up_bias and down_bias [experts, rows]. `products` compute the two products of each
    expert in a number format.
    """

    def __init__(
        self,
        experts: int,
        dim: int,
        hidden: int,
        *,
        act: str = "silu",
        gated: bool = True,
        bias: bool = False,
        beta: float = 1.0,
        limit: float | None = None,
        up_offset: float = 0.0,
        products: tuple[nn.Module | None, nn.Module | None] = (None, None),
    ) -> None:
        super().__init__()
        self.first_product, self.down_product = products
        rows = 2 * hidden if gated else hidden
        self.first = "gate_up" if gated else "up"
        self.register_parameter(self.first, nn.Parameter(torch.empty(experts, rows, dim)))
        self.down = nn.Parameter(torch.empty(experts, dim, hidden))
        self.bias = bias
        if bias:
            self.register_parameter(f"{self.first}_bias", nn.Parameter(torch.empty(experts, rows)))
            self.down_bias = nn.Parameter(torch.empty(experts, dim))
        self.act = ACTIVATIONS[act] if beta == 1.0 else lambda x: x * (beta * x).sigmoid()
        self.gated, self.limit, self.up_offset = gated, limit, up_offset

    def placed(self, name: str, across: Across) -> None:
        """As of any module with products of few bits."""
        product = {self.first: self.first_product, "down": self.down_product}.get(name)
        if product is not None:
            product.across = across

    def forward(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """x [..., dim], weights and ids [..., k] -> Σ over the choices of weight · expert(x), [..., dim].

        Tokens are sorted by expert; an expert without tokens costs nothing and gets a zero gradient. The sum over the
        choices is taken in their order, so the result and its gradients are the same in every run.
        """
        flat = x.reshape(-1, x.shape[-1])
        tokens, places, counts = sorted_by_expert(ids.reshape(-1, ids.shape[-1]), self.down.shape[0])
        rows = flat[tokens]
        if self.first_product is not None:
            # fillers of zeros, which raise no scale that real rows share with them
            real = torch.zeros(rows.shape[0], 1, dtype=torch.bool, device=rows.device)
            rows = rows.where(real.index_fill(0, places.reshape(-1), True), 0)
        # unbind, since the gradient of an index is as large as all experts, for each of them
        names = (self.first, "down", f"{self.first}_bias", "down_bias")
        absent = (None,) * self.down.shape[0]
        given = (getattr(self, name, None) for name in names)
        experts = zip(*(absent if p is None else p.unbind() for p in given), strict=True)
        outputs = []
        for n, (part, (up, down, first, second)) in enumerate(zip(rows.split(counts), experts, strict=True)):
            if part.shape[0]:
                inside = self._inside(_product(self.first_product, part, up, first, n))
                outputs.append(_product(self.down_product, inside, down, second, n))
        if not outputs:
            return x * 0
        chosen = torch.cat(outputs)[places]
        return (chosen * weights.reshape(*places.shape, 1)).sum(1).view_as(x)

    def _inside(self, inside: Tensor) -> Tensor:
        if not self.gated:
            return self.act(inside)
        gate, up = inside.chunk(2, dim=-1)
        if self.limit is not None:
            gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return self.act(gate) * (up + self.up_offset if self.up_offset else up)


def _product(kind: nn.Module | None, x: Tensor, weight: Tensor, bias: Tensor | None, expert: int) -> Tensor:
    return F.linear(x, weight, bias) if kind is None else kind(x, weight, bias, index=expert)


def sorted_by_expert(ids: Tensor, experts: int, multiple: int = 0) -> tuple[Tensor, Tensor, list[int]]:
    """ids [T, k] -> the tokens [rows] that the experts' products take, the row [T, k] of each choice, and the rows of
    each expert.

    Products of matrices round a row differently by the number of rows, unless that is a multiple of ROWS: fillers (of
    token 0, read by nobody) make it one, so that what one document chooses changes no bit of another. A format that
    needs a `multiple` of its own gets it for a single token as well.
    """
    chosen = ids.reshape(-1)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=experts)
    multiple = multiple or (1 if ids.shape[0] == 1 else ROWS)
    rows = (counts + (multiple - 1)) // multiple * multiple
    fillers = (rows - counts).cumsum(0) - (rows - counts)
    sorted_rows = torch.arange(chosen.shape[0], device=ids.device) + fillers[chosen[order]]
    sizes = rows.tolist()
    tokens = torch.zeros(sum(sizes), dtype=torch.int64, device=ids.device)
    tokens[sorted_rows] = order // ids.shape[1]
    places = torch.empty_like(sorted_rows)
    places[order] = sorted_rows
    return tokens, places.view(ids.shape), sizes
