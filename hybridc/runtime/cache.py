"""Caches: keys and values of attention, last inputs of convolutions, states of scans; one entry an op and layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from hybridc.runtime.errors import UsageError


def _append(store: Tensor, new: Tensor, past: int) -> Tensor:
    """Writes new [B, heads, S, dim] into store [B, heads, max_len, dim] behind `past` tokens; all up to there.

    Gradients reach the new tokens, not those of earlier calls.
    """
    end = past + new.shape[2]
    grad = torch.is_grad_enabled()
    store[:, :, past:end] = new.detach() if grad else new
    if not grad:
        return store[:, :, :end].to(new.dtype)
    return torch.cat((store[:, :, :past].to(new.dtype), new), dim=2) if past else new


def _append_ragged(store: Tensor, new: Tensor, row: Tensor, place: Tensor, end: int) -> Tensor:
    """As `_append`, with the cache's row [B, 1] and the place [B, S] of each new token; all up to `end`."""
    by_token, new = store.transpose(1, 2), new.transpose(1, 2)
    by_token[row, place] = new.detach().to(store.dtype)
    seen = by_token[:, :end].to(new.dtype)
    if torch.is_grad_enabled():
        seen = seen.index_put((row, place), new)
    return seen.transpose(1, 2)


def _longer(store: Tensor, max_len: int) -> Tensor:
    """store [B, heads, tokens, dim] with places for `max_len` tokens."""
    return F.pad(store, (0, 0, 0, max_len - store.shape[2]))


class KVState:
    """Keys and values [batch, heads, max_len, head_dim]; how much of a row is filled, the cache knows."""

    def __init__(
        self, batch: int, max_len: int, *, heads: int, head_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:  # fmt: skip
        self.k = torch.zeros(batch, heads, max_len, head_dim, device=device, dtype=dtype)
        self.v = torch.zeros_like(self.k)

    def append(self, k: Tensor, v: Tensor, past: int, *, row: int | None = None) -> tuple[Tensor, Tensor]:
        """Writes [B, heads, S, head_dim] behind `past` tokens, in all rows or one; returns all up to there.

        Gradients reach the new tokens, not those of earlier calls.
        """
        rows = slice(None) if row is None else slice(row, row + 1)
        return _append(self.k[rows], k, past), _append(self.v[rows], v, past)

    def append_ragged(self, k: Tensor, v: Tensor, row: Tensor, place: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """As `append`, with the cache's row [B, 1] and the place [B, S] of each new token; all up to `end`."""
        return _append_ragged(self.k, k, row, place, end), _append_ragged(self.v, v, row, place, end)

    def grow(self, max_len: int) -> None:
        """Makes room for `max_len` tokens a row."""
        self.k, self.v = _longer(self.k, max_len), _longer(self.v, max_len)

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows."""
        new = object.__new__(type(self))
        new.k, new.v = self.k[rows], self.v[rows]
        return new

    def reset(self, rows: Sequence[int]) -> None:
        """Nothing to do: what lies behind a row's length is never read."""


class LatentState:
    """Latents of multi-head latent attention (DeepSeek-V2, 2024) [batch, 1, max_len, rank + rope_dim]: the keys, whose
    first `rank` channels are the values too. Used as a KVState of one head."""

    def __init__(
        self, batch: int, max_len: int, *, rank: int, rope_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:  # fmt: skip
        self.rank = rank
        self.latents = torch.zeros(batch, 1, max_len, rank + rope_dim, device=device, dtype=dtype)

    def append(self, k: Tensor, v: Tensor, past: int, *, row: int | None = None) -> tuple[Tensor, Tensor]:
        """As KVState's, `v` being a part of `k`."""
        seen = _append(self.latents[slice(None) if row is None else slice(row, row + 1)], k, past)
        return seen, seen[..., : self.rank]

    def append_ragged(self, k: Tensor, v: Tensor, row: Tensor, place: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """As KVState's, `v` being a part of `k`."""
        seen = _append_ragged(self.latents, k, row, place, end)
        return seen, seen[..., : self.rank]

    def grow(self, max_len: int) -> None:
        """Makes room for `max_len` tokens a row."""
        self.latents = _longer(self.latents, max_len)

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows."""
        new = object.__new__(type(self))
        new.rank, new.latents = self.rank, self.latents[rows]
        return new

    def reset(self, rows: Sequence[int]) -> None:
        """Nothing to do: what lies behind a row's length is never read."""


def _kept(old: Tensor, new: Tensor) -> Tensor:
    """Writes in place, unless a backward may still want the old values."""
    if torch.is_grad_enabled():
        return new.detach().to(old.dtype).reshape(old.shape).clone()
    return old.copy_(new.reshape(old.shape))


class ConvState:
    """The last taps - 1 inputs of a convolution, [batch, taps - 1, channels], fp32."""

    def __init__(self, batch: int, *, conv: tuple[int, int], device: torch.device, dtype: torch.dtype) -> None:
        channels, taps = conv
        self.conv = torch.zeros(batch, taps - 1, channels, device=device, dtype=torch.float32)

    def keep_conv(self, last: Tensor) -> None:
        """The last inputs of the new tokens, [batch, taps - 1, channels]."""
        self.conv = _kept(self.conv, last)

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows."""
        new = object.__new__(type(self))
        new.conv = self.conv[rows]
        return new

    def reset(self, rows: Sequence[int]) -> None:
        """Rows as they are before a sequence's first token."""
        self.conv[rows] = 0


class ScanState:
    """A scan's state [batch, ...], fp32."""

    def __init__(self, batch: int, *, ssm: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> None:
        self.ssm = torch.zeros(batch, *ssm, device=device, dtype=torch.float32)

    def keep_ssm(self, last: Tensor) -> None:
        """The states behind the new tokens, [batch, ...state] or a reshape of it."""
        self.ssm = _kept(self.ssm, last)

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows."""
        new = object.__new__(type(self))
        new.ssm = self.ssm[rows]
        return new

    def reset(self, rows: Sequence[int]) -> None:
        """Rows as they are before a sequence's first token."""
        self.ssm[rows] = 0


class MambaState:
    """The last taps - 1 inputs of a convolution, [batch, taps - 1, channels], and a scan's state [batch, ...].

    Both are fp32, whatever `dtype` the model computes in: a state is added to for as long as its sequence grows.
    """

    def __init__(
        self, batch: int, *, conv: tuple[int, int], ssm: tuple[int, ...], device: torch.device, dtype: torch.dtype
    ) -> None:  # fmt: skip
        channels, taps = conv
        self.conv = torch.zeros(batch, taps - 1, channels, device=device, dtype=torch.float32)
        self.ssm = torch.zeros(batch, *ssm, device=device, dtype=torch.float32)

    def keep_ssm(self, last: Tensor) -> None:
        """The states behind the new tokens, [batch, ...state] or a reshape of it."""
        self.ssm = _kept(self.ssm, last)

    def keep_conv(self, last: Tensor) -> None:
        """The last inputs of the new tokens, [batch, taps - 1, channels]."""
        self.conv = _kept(self.conv, last)

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows."""
        new = object.__new__(type(self))
        new.conv, new.ssm = self.conv[rows], self.ssm[rows]
        return new

    def reset(self, rows: Sequence[int]) -> None:
        """Rows as they are before a sequence's first token."""
        self.conv[rows] = 0
        self.ssm[rows] = 0


class Cache:
    """All layers' entries for `batch` sequences of up to `max_len` tokens.

    `layers[i]` holds layer i's entries by submodule path, `lengths` the tokens that each row has seen. `version` is
    that of the weights which filled it: a forward under other weights raises UsageError until all rows are reset or
    `version` is set anew. `weights` gives the version of the net's weights as they are.
    """

    def __init__(
        self, layers: list[dict[str, Any]], batch: int, max_len: int, weights: Callable[[], int] | None = None
    ) -> None:  # fmt: skip
        self.layers, self.batch, self.max_len = layers, batch, max_len
        self.lengths = [0] * batch
        self.version: int | None = None
        self._weights = weights
        self._open = False

    def reserve(self, lengths: Sequence[int]) -> None:
        """Opens a step of so many new tokens a row.

        Raises UsageError, before anything is written, for tokens that do not fit, for weights that have changed and
        for an earlier step that broke off halfway.
        """
        if len(lengths) != self.batch:
            raise UsageError(
                f"{len(lengths)} sequences for a cache of {self.batch} rows", "make the cache with that batch"
            )
        longest = max(p + n for p, n in zip(self.lengths, lengths, strict=True))
        if longest > self.max_len:
            raise UsageError(
                f"{longest} tokens do not fit a cache of {self.max_len}", "make the cache with a larger max_len"
            )
        if self._open:
            raise UsageError(
                "an earlier forward with this cache broke off, and some layers have seen its tokens",
                "reset the cache, or go on from a fork that was made before",
            )
        current = None if self._weights is None else self._weights()
        if self.version is not None and self.version != current and any(self.lengths):
            raise UsageError(
                "the weights have changed since this cache was filled",
                "reset it, or set cache.version = net.weights_version to go on with the old states",
            )
        self.version = current
        self._open = True

    def advance(self, lengths: Sequence[int]) -> None:
        """Closes the step: counts the new tokens of each row."""
        self.lengths = [p + n for p, n in zip(self.lengths, lengths, strict=True)]
        self._open = False

    def grow(self, max_len: int) -> None:
        """Makes room for `max_len` tokens a row, if there is less; what is held stays. Entries whose size does not
        depend on the number of tokens have no `grow`."""
        if max_len <= self.max_len:
            return
        for layer in self.layers:
            for entry in layer.values():
                if hasattr(entry, "grow"):
                    entry.grow(max_len)
        self.max_len = max_len

    def fork(self, row: int, n: int) -> Cache:
        """A cache of `n` rows that all start as a copy of `row`: one prefill for many continuations."""
        if not -self.batch <= row < self.batch or n < 1:
            raise UsageError(f"cannot fork row {row} of {self.batch} into {n}", "give a row of this cache and n >= 1")
        return self.select([row % self.batch] * n)

    def select(self, rows: Sequence[int]) -> Cache:
        """A cache of copies of these rows, in this order; a row may come more than once."""
        self._check_rows(rows)
        index = torch.tensor(rows, dtype=torch.int64)
        layers = [{name: entry.select(index) for name, entry in layer.items()} for layer in self.layers]
        new = Cache(layers, len(rows), self.max_len, self._weights)
        new.lengths = [self.lengths[r] for r in rows]
        new.version, new._open = self.version, self._open
        return new

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Empties some rows, or all."""
        chosen = list(range(self.batch)) if rows is None else list(rows)
        self._check_rows(chosen)
        for layer in self.layers:
            for entry in layer.values():
                entry.reset(chosen)
        for row in chosen:
            self.lengths[row] = 0
        if rows is None:
            self._open = False

    def _check_rows(self, rows: Sequence[int]) -> None:
        if not all(0 <= r < self.batch for r in rows):
            raise UsageError(f"rows {list(rows)} of a cache of {self.batch}", f"give rows from 0 to {self.batch - 1}")
