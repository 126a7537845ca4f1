"""Generation on the cache: greedy or sampled, rows that stop on their own, samples that no other row can change."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from hybridc.runtime.errors import UsageError


def next_token_logits(logits: Tensor, *, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Log-probabilities of the distribution that is sampled, fp32 [vocab]: logits [vocab] over temperature, cut to the
    `top_k` largest, then to the fewest most probable ones that hold `top_p` of the mass; -inf elsewhere."""
    # the largest becomes 0, so that no temperature makes an infinity of it
    scaled = (logits.float() - logits.float().amax(-1, keepdim=True)) / temperature
    if 0 < top_k < scaled.shape[-1]:
        least = scaled.topk(top_k).values[-1]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if top_p < 1.0:
        order = scaled.argsort(descending=True, stable=True)
        mass = scaled[order].softmax(-1).cumsum(-1)
        # the token that crosses top_p is kept, so the first one always is
        cut = order[1:][mass[:-1] >= top_p]
        scaled = scaled.index_fill(0, cut, -torch.inf)
    return scaled.log_softmax(-1)


def _sample(logits: Tensor, temperature: float, top_k: int, top_p: float, seed: tuple[int, int, int]) -> int:
    probabilities = next_token_logits(logits, temperature=temperature, top_k=top_k, top_p=top_p).exp().cpu()
    base, step, row = seed
    # odd multipliers far apart: neighbouring steps and rows get unrelated generators
    mixed = (base * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + row * 0x94D049BB133111EB + 1) % (1 << 63)
    generator = torch.Generator().manual_seed(mixed)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def generate(
    net: Any,
    input_ids: Tensor,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop_ids: Collection[int] = (),
    attention_mask: Tensor | None = None,
    on_token: Callable[[int, int], object] | None = None,
) -> list[list[int]]:
    """New tokens for each row of input_ids [B, S], up to `max_new_tokens`, ending at a stop id (not returned).

    Temperature 0 takes the most probable token; else tokens are drawn as `next_token_logits` says, from a generator
    that depends on (seed, step, row) only. Prompts of different lengths come padded, on either side, with an attention
    mask [B, S]. `on_token(row, id)` is called for each token as it comes. Raises UsageError for settings that make no
    sense.
    """
    if input_ids.dim() != 2 or input_ids.shape[1] < 1:
        raise UsageError(f"input_ids are {list(input_ids.shape)}", "give [batch, tokens] with one token or more")
    if not 0 <= temperature < math.inf or not 0 < top_p <= 1 or top_k < 0 or max_new_tokens < 0:
        raise UsageError(
            f"temperature {temperature}, top_k {top_k}, top_p {top_p}, max_new_tokens {max_new_tokens}",
            "use temperature >= 0, top_k >= 0, 0 < top_p <= 1 and max_new_tokens >= 0",
        )
    if attention_mask is not None and not bool(attention_mask.any(1).all()):
        raise UsageError("a prompt has no token at all", "give each row one token or more")
    rows, length = input_ids.shape
    out: list[list[int]] = [[] for _ in range(rows)]
    if not max_new_tokens:
        return out
    stops = set(stop_ids)
    training = net.training
    net.eval()
    try:
        with torch.inference_mode():
            cache = net.new_cache(rows, length + max_new_tokens)
            logits = net(input_ids, attention_mask=attention_mask, cache=cache).logits
            last = _last_real(logits, attention_mask)
            live = list(range(rows))
            for step in range(max_new_tokens):
                if temperature == 0:
                    chosen = last.argmax(-1).tolist()
                else:
                    chosen = [
                        _sample(last[n], temperature, top_k, top_p, (seed, step, row)) for n, row in enumerate(live)
                    ]
                keep = [n for n, token in enumerate(chosen) if token not in stops]
                for n in keep:
                    out[live[n]].append(chosen[n])
                    if on_token is not None:
                        on_token(live[n], chosen[n])
                if not keep or step == max_new_tokens - 1:
                    break
                if len(keep) < len(live):
                    cache = cache.select(keep)
                    live = [live[n] for n in keep]
                ids = torch.tensor([[chosen[n]] for n in keep], device=input_ids.device)
                last = net(ids, cache=cache).logits[:, -1]
    finally:
        net.train(training)
    return out


def _last_real(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Logits [B, vocab] at each row's last real token."""
    if mask is None:
        return logits[:, -1]
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask.bool(), places, -1).amax(1)
    return logits[torch.arange(logits.shape[0], device=logits.device), last]
