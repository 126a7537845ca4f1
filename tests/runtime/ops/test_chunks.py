"""Cutting documents into chunks: every token once, none beside a stranger."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime.ops.chunks import Chunks, StatePassing
from tests.runtime.ops.cases import CPU, borders, made


@given(borders, st.integers(1, 70))
@settings(max_examples=60)
def test_documents(borders, longest):
    length = borders[-1]
    chunks = Chunks.make(length, borders, longest, CPU)
    tokens = torch.arange(1, length + 1.0)[None, :, None]
    cut = chunks.cut(tokens)
    assert cut.shape[2] <= longest and cut.shape[1] == len(chunks.document)
    assert torch.equal(chunks.join(cut), tokens)
    for n, document in enumerate(chunks.document):
        inside = cut[0, n, :, 0]
        inside = inside[inside > 0] - 1
        assert len(inside) and inside.min() >= borders[document] and inside.max() < borders[document + 1]


@given(st.integers(1, 200), st.integers(1, 70))
@settings(max_examples=60)
def test_rows(length, longest):
    chunks = Chunks.make(length, None, longest, CPU)
    tokens = torch.arange(2 * length).view(2, length, 1)
    cut = chunks.cut(tokens)
    assert cut.shape[2] <= longest
    # chunks of about one size, so that a row a little longer than one chunk makes no second full one
    assert cut.shape[1] * cut.shape[2] < length + cut.shape[1]
    assert torch.equal(chunks.join(cut), tokens)


def test_short_documents_get_short_chunks():
    many = Chunks.make(1640, [*range(0, 641, 10), 1640], 64, CPU)
    assert len(many.document) * many.size < 2 * 1640


@pytest.mark.parametrize("document", [[0, 0, 0], [0, 0, 1], [0, 1, 3]], ids=str)
def test_state_passing_by_differences(document):
    given = [made(1, 2, 3, 2, 2), made(2, 2, 3, 2).sigmoid(), made(3, 4, 2, 2, 2)]
    given = [i.double().requires_grad_() for i in given]
    assert torch.autograd.gradcheck(lambda *i: StatePassing.apply(*i, document), given)
