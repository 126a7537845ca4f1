"""Adapters against their formula in float64."""

import pytest
import torch

from hybridc.runtime import ops
from tests.runtime.ops.cases import close, made


@pytest.mark.parametrize("parts", [(6,), (4, 2, 2)])
def test_each_part_has_a_pair_of_its_own(parts):
    adapter = ops.Lora(5, 3, parts)
    downs = [made(n, 3, 5) for n in range(len(parts))]
    ups = [made(9 + n, rows, 3) for n, rows in enumerate(parts)]
    with torch.no_grad():
        adapter.down.weight.copy_(torch.cat(downs))
        for up, value in zip(adapter.up, ups, strict=True):
            up.weight.copy_(value)
    x = made(20, 2, 7, 5)
    want = [x.double() @ d.double().T @ u.double().T for d, u in zip(downs, ups, strict=True)]
    close(adapter(x), torch.cat(want, -1), 1e-5)
