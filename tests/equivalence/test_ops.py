"""Every op over tensor-parallel ranks, in plain, padded and packed rows that ranks do not divide."""

import pytest

from tests.equivalence.cases import BATCHES, SUBLAYERS, Case
from tests.equivalence.run import differences


@pytest.mark.parametrize("ranks", ["2", "4"])
@pytest.mark.parametrize("index", range(len(SUBLAYERS)))
def test_an_op(index, ranks):
    batch = BATCHES[(index + int(ranks) // 2) % 3]
    case = Case(((SUBLAYERS[index],),), (0,), "", (("tp", ranks),), batch, 2, 7, 1, index)
    assert not differences(case)
