"""A net's cache in the form that transformers' `generate()` works with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from torch import Tensor

from hybridc.runtime.cache import Cache
from hybridc.runtime.errors import UsageError

ROOM = 64
"""Tokens that a cache has room for beyond its first ones; it doubles when they are used up."""


class GenerationCache:
    """A cache that grows with its rows, and whose rows are picked and repeated in place, as beams want it.

    `seen` counts tokens as `generate()` does, padding included; the cache itself holds each row's real ones.
    """

    is_compileable = False
    is_croppable = False
    is_linear = (False,)
    """transformers asks this of each layer: only where all are linear does it not look at the length."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.seen = max(cache.lengths)

    def make_room(self, tokens: int) -> None:
        """Grows the cache, if need be, so that each row can take so many more tokens."""
        needed = max(self.cache.lengths) + tokens
        if needed > self.cache.max_len:
            self.cache.grow(max(needed, 2 * self.cache.max_len))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens of a row so far, padding included."""
        return self.seen

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        """-1: there is no limit."""
        return -1

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row n becomes a copy of row beam_idx[n]."""
        self._pick(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keeps these rows, in this order."""
        self._pick(indices.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes `repeats` rows that follow each other."""
        self._pick([row for row in range(self.cache.batch) for _ in range(repeats)])

    def crop(self, max_length: int) -> NoReturn:
        """Raises UsageError: the states of scans and convolutions cannot be taken back."""
        raise UsageError("this cache cannot be cropped", "generate without an assistant model or prompt lookup")

    def reset(self) -> None:
        """Empties all rows."""
        self.cache.reset()
        self.seen = 0

    def _pick(self, rows: Sequence[int]) -> None:
        if list(rows) != list(range(self.cache.batch)):
            self.cache = self.cache.select(rows)
