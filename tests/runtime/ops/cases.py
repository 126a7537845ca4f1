"""Inputs, contexts and checks that the tests of the ops share."""

import torch
from hypothesis import strategies as st

from hybridc.runtime.context import Context, PackedSeq

CPU = torch.device("cpu")

PIECES = [[40], [1] * 12, [20, 1, 1, 1], [3, 9, 1, 17], [1, 30, 2]]
"""Ways to cut a sequence into calls with a cache."""

borders = (
    st.lists(st.integers(0, 21), min_size=1, max_size=6)
    .map(lambda lengths: [0, *(sum(lengths[: n + 1]) for n in range(len(lengths)))])
    .filter(lambda b: b[-1] > 0)
)
"""Offsets of documents of 0 to 21 tokens."""


def packed(offsets, cache=None):
    return Context(torch.zeros(1, offsets[-1], dtype=torch.int64), seq=PackedSeq(offsets), cache=cache)


def plain(rows, length, cache=None):
    return Context(torch.zeros(rows, length, dtype=torch.int64), cache=cache)


def made(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gradients(function, inputs):
    """Gradients of a random weighting of what the function gives."""
    inputs = [i.clone().requires_grad_() for i in inputs]
    out = function(*inputs)
    (out * made(9, *out.shape).to(out.dtype)).sum().backward()
    return [i.grad for i in inputs]


def close(got, want, tolerance=1e-5):
    """Largest error over the scale of the reference, which is float64."""
    assert got.shape == want.shape
    if not want.numel():
        return
    worst = (got.double() - want).abs().max().item() / max(1.0, want.abs().max().item())
    assert worst <= tolerance, worst  # NaN fails too
