"""Ternary weights at 2 bits: the layout is that of transformers, whose own functions are the reference."""

import pytest
import torch
from transformers.integrations.bitnet import pack_weights, unpack_weights

from hybridc.runtime.ops.ternary_rows import pack_rows, unpack_rows


def levels(rows, width=7, seed=0):
    return torch.randint(-1, 2, (rows, width), dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [4, 8, 36])
def test_bytes_are_those_of_transformers(rows):
    values = levels(rows)
    packed = pack_rows(values)
    assert torch.equal(packed, pack_weights(values.clone()))
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(unpack_rows(packed, (rows,)), unpack_weights(packed, torch.int8))


@pytest.mark.parametrize("parts", [(1,), (2, 3), (8, 4, 5), (9, 1, 6)])
def test_each_part_is_packed_for_itself(parts):
    values = levels(sum(parts))
    packed = pack_rows(values, parts)
    assert packed.dtype == torch.uint8 and packed.shape == (sum((p + 3) // 4 for p in parts), 7)
    assert torch.equal(packed, torch.cat([pack_rows(v) for v in values.split(parts)]))
    for dtype in (torch.int8, torch.float32, torch.bfloat16):
        assert torch.equal(unpack_rows(packed, parts, dtype), values.to(dtype))
