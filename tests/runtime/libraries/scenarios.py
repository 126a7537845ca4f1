"""The ways in which a mixer is used: rows, documents, and caches filled in pieces, against a model in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch

from hybridc.runtime.cache import Cache
from tests.runtime.ops.cases import close, gradients, packed, plain

BORDERS = [0, 1, 9, 9, 42]
"""A document of one token, one shorter than a chunk, an empty one, and one of several chunks."""


@dataclass
class Mixer:
    """`call(timed, constants, ctx, state)` computes y [B, S, ...] from tensors [B, S, ...] and others; `model(timed,
    constants)` the same of one document [S, ...], with its last state or None; `state(batch)` makes a cache entry."""

    call: Callable
    model: Callable
    timed: list[torch.Tensor]
    constants: list[torch.Tensor]
    state: Callable

    def cut(self, row, s=None, e=None):
        """A document's inputs."""
        return [t[row, s:e] for t in self.timed]


def check_rows(mixer):
    """Each row is a document; with a cache, its end is kept."""
    rows, length = mixer.timed[0].shape[:2]
    for state in (None, mixer.state(rows)):
        cache = None if state is None else Cache([{"op": state}], rows, length)
        with torch.no_grad():
            y = mixer.call(mixer.timed, mixer.constants, plain(rows, length, cache), state)
        for row in range(rows):
            want, last = mixer.model(mixer.cut(row), mixer.constants)
            close(y[row], want)
            if state is not None and last is not None:
                close(state.ssm[row], last)


def check_gradients(mixer, borders=None):
    """Of the first row, as one document or as several; values too."""
    count, length = len(mixer.timed), borders[-1] if borders else mixer.timed[0].shape[1]
    given = [t[:1, :length] for t in mixer.timed] + mixer.constants
    ctx = packed(borders) if borders else plain(1, length)
    spans = [(s, e) for s, e in pairwise(borders) if e > s] if borders else [(0, length)]

    def ours(*given):
        return mixer.call(list(given[:count]), list(given[count:]), ctx, None)[0]

    def modelled(*given):
        parts = [mixer.model([t[0, s:e] for t in given[:count]], list(given[count:]))[0] for s, e in spans]
        return torch.cat(parts)

    close(ours(*given), modelled(*given))
    for got, want in zip(gradients(ours, given), gradients(modelled, [t.double() for t in given]), strict=True):
        close(got, want)


def check_pieces(mixer, pieces, grad=False):
    """Rows that go on from a cache in calls of `pieces` tokens."""
    rows, total = mixer.timed[0].shape[0], sum(pieces)
    state = mixer.state(rows)
    cache = Cache([{"op": state}], rows, total)
    got, at = [], 0
    with torch.set_grad_enabled(grad):
        for n in pieces:
            timed = [t[:, at : at + n] for t in mixer.timed]
            got.append(mixer.call(timed, mixer.constants, plain(rows, n, cache), state))
            cache.advance([n] * rows)
            at += n
    for row in range(rows):
        want, last = mixer.model(mixer.cut(row, 0, total), mixer.constants)
        close(torch.cat(got, 1)[row], want)
        if last is not None:
            close(state.ssm[row], last)


def check_packed_cache(mixer, rows=3):
    """Documents that go on from a cache, with rows that get no token, one, and several."""
    state = mixer.state(rows)
    cache = Cache([{"op": state}], rows, 20)
    at, got = [0] * rows, [[] for _ in range(rows)]
    with torch.no_grad():
        for lengths in ([1, 2, 0], [0, 1, 3], [5, 0, 1], [1, 1, 1]):
            offsets = [sum(lengths[:n]) for n in range(rows + 1)]
            timed = [torch.cat([t[r, at[r] : at[r] + lengths[r]] for r in range(rows)])[None] for t in mixer.timed]
            y = mixer.call(timed, mixer.constants, packed(offsets, cache), state)
            cache.advance(lengths)
            for r in range(rows):
                got[r].append(y[0, offsets[r] : offsets[r + 1]])
                at[r] += lengths[r]
    for r in range(rows):
        want, last = mixer.model(mixer.cut(r, 0, at[r]), mixer.constants)
        close(torch.cat(got[r]), want)
        if last is not None:
            close(state.ssm[r], last)
