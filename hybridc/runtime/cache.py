"""Caches: keys and values of attention, last inputs of convolutions, states of scans; one entry an op and layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from hybridc.runtime.errors import UsageError


class KVState:
    """Keys and values [batch, heads, max_len, head_dim]; how much of a row is filled, the cache knows."""

    def __init__(
        self, batch: int, max_len: int, *, heads: int, head_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:  # fmt: skip
        self.k = torch.zeros(batch, heads, max_len, head_dim, device=device, dtype=dtype)
        self.v = torch.zeros_like(self.k)

    def append(self, k: Tensor, v: Tensor, past: int, *, row: int | None = None) -> tuple[Tensor, Tensor]:
        """Writes [B, heads, S, head_dim] behind `past` tokens, in all rows or one; returns all up to there."""
        end = past + k.shape[2]
        rows = slice(None) if row is None else slice(row, row + 1)
        self.k[rows, :, past:end] = k.detach()
        self.v[rows, :, past:end] = v.detach()
        if past == 0 and torch.is_grad_enabled():
            return k, v
        return self.k[rows, :, :end].to(k.dtype), self.v[rows, :, :end].to(v.dtype)

    def append_ragged(self, k: Tensor, v: Tensor, past: Sequence[int]) -> tuple[Tensor, Tensor]:
        """As `append` with a past of its own for each row; returns up to the longest row's end."""
        length = k.shape[2]
        for row, start in enumerate(past):
            self.k[row, :, start : start + length] = k[row].detach()
            self.v[row, :, start : start + length] = v[row].detach()
        end = max(past) + length
        return self.k[:, :, :end].to(k.dtype), self.v[:, :, :end].to(v.dtype)

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows."""
        new = object.__new__(type(self))
        new.k, new.v = self.k[rows].clone(), self.v[rows].clone()
        return new

    def reset(self, rows: Sequence[int]) -> None:
        """Nothing to do: what lies behind a row's length is never read."""


def _kept(old: Tensor, new: Tensor) -> Tensor:
    """Writes in place, unless a backward may still want the old values."""
    if torch.is_grad_enabled():
        return new.detach().to(old.dtype).reshape(old.shape).clone()
    return old.copy_(new.reshape(old.shape))


class MambaState:
    """The last taps - 1 inputs of a convolution, [batch, taps - 1, channels], and a scan's state [batch, ...]; both
    fp32."""

    def __init__(
        self, batch: int, *, conv: tuple[int, int], ssm: tuple[int, ...], device: torch.device, dtype: torch.dtype
    ) -> None:  # fmt: skip
        channels, taps = conv
        self.conv = torch.zeros(batch, taps - 1, channels, device=device)
        self.ssm = torch.zeros(batch, *ssm, device=device)

    def keep_ssm(self, last: Tensor) -> None:
        """The states behind the new tokens, [batch, ...state] or a reshape of it."""
        self.ssm = _kept(self.ssm, last)

    def keep_conv(self, last: Tensor) -> None:
        """The last inputs of the new tokens, [batch, taps - 1, channels]."""
        self.conv = _kept(self.conv, last)

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows."""
        new = object.__new__(type(self))
        new.conv, new.ssm = self.conv[rows].clone(), self.ssm[rows].clone()
        return new

    def reset(self, rows: Sequence[int]) -> None:
        """Rows as they are before a sequence's first token."""
        self.conv[list(rows)] = 0
        self.ssm[list(rows)] = 0


class Cache:
    """All layers' entries for `batch` sequences of up to `max_len` tokens.

    `layers[i]` holds layer i's entries by submodule path; `lengths` the tokens that each row has seen. `version` is the
    version of the weights that filled it: reading it under other weights raises UsageError until it is reset or
    `version`
    is set anew.
    """

    def __init__(self, layers: list[dict[str, Any]], batch: int, max_len: int, weights: Any = None) -> None:
        self.layers, self.batch, self.max_len = layers, batch, max_len
        self.lengths = [0] * batch
        self._weights = weights
        self.version: object = None

    def reserve(self, lengths: Sequence[int]) -> None:
        """Checks that new tokens fit and that the weights are those that filled the rows. Raises UsageError."""
        longest = max((p + n for p, n in zip(self.lengths, lengths, strict=True)), default=0)
        if longest > self.max_len:
            raise UsageError(
                f"{longest} tokens do not fit a cache of {self.max_len}", "make the cache with a larger max_len"
            )
        current = self._weights() if self._weights is not None else None
        if any(self.lengths) and self.version is not None and self.version != current:
            raise UsageError(
                "the weights have changed since this cache was filled",
                "reset it, or set cache.version = net.weights_version to go on with the old states",
            )
        self.version = current

    def advance(self, lengths: Sequence[int]) -> None:
        """Counts new tokens, row by row."""
        self.lengths = [p + n for p, n in zip(self.lengths, lengths, strict=True)]

    def _entries(self) -> list[Any]:
        return [entry for layer in self.layers for entry in layer.values()]

    def fork(self, row: int, n: int) -> Cache:
        """A cache of `n` rows that all start as a copy of `row`: one prefill for many continuations."""
        if not -self.batch <= row < self.batch or n < 1:
            raise UsageError(f"cannot fork row {row} of {self.batch} into {n}", "give a row of this cache and n >= 1")
        return self.select([row % self.batch] * n)

    def select(self, rows: Sequence[int]) -> Cache:
        """A cache of copies of these rows, in this order."""
        index = torch.tensor(list(rows), dtype=torch.int64)
        layers = [{name: entry.select(index) for name, entry in layer.items()} for layer in self.layers]
        new = Cache(layers, len(index), self.max_len, self._weights)
        new.lengths = [self.lengths[r] for r in index.tolist()]
        new.version = self.version
        return new

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Empties some rows, or all."""
        chosen = list(range(self.batch)) if rows is None else [int(r) for r in rows]
        if any(not 0 <= r < self.batch for r in chosen):
            raise UsageError(f"rows {chosen} of a cache of {self.batch}", f"give rows from 0 to {self.batch - 1}")
        for entry in self._entries():
            entry.reset(chosen)
        for row in chosen:
            self.lengths[row] = 0
