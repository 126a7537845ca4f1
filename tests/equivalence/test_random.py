"""Random models on random meshes: the first seeds; `python -m tests.equivalence` goes on from there."""

import pytest

from tests.conftest import EXAMPLES
from tests.equivalence.cases import random_case, shrunk
from tests.equivalence.run import differences


@pytest.mark.parametrize("seed", range(EXAMPLES // 10))
def test_a_random_case(seed):
    assert not differences(random_case(seed))


def test_shrinking():
    """A fault of one op on one axis is found by itself, in the smallest of everything else."""

    def faulty(case):
        return "tp" in case.axes and any("mla" in part for n in case.layers for part in case.blocks[n])

    case = next(c for c in map(random_case, range(1000)) if faulty(c) and len(c.mesh) > 1 and len(c.layers) > 1)
    small = shrunk(case, faulty)
    assert small.axes == {"tp": "2"} and len(small.layers) == 1 and small.length <= 3 and small.batch == "plain"
    assert ["mla" in part for part in small.blocks[small.layers[0]]] == [True]
