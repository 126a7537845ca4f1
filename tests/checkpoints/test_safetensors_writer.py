"""Files written tensor by tensor, read by the format's own library."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from hybridc.checkpoints.safetensors_writer import write_tensors


@pytest.mark.parametrize(
    ("format", "dtype"), [("F32", torch.float32), ("BF16", torch.bfloat16), ("F16", torch.float16)]
)
def test_the_library_reads_them(tmp_path: Path, format: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    made = {"a.weight": torch.randn(3, 5), "ü": torch.randn(7).to(torch.float16), "t": torch.randn(4, 2).T}
    path = tmp_path / "x.safetensors"
    write_tensors(path, {n: tuple(t.shape) for n, t in made.items()}, made.__getitem__, format)
    found = load_file(path)
    assert set(found) == set(made)
    assert all(torch.equal(t, made[n].to(dtype)) and t.dtype == dtype for n, t in found.items())
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_tensor_of_another_shape_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a has the shape \[2\]"):
        write_tensors(tmp_path / "x.safetensors", {"a": (3,)}, lambda _: torch.zeros(2), "F32")


def test_each_tensor_in_its_own_format(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = {"a": torch.randn(3), "b": torch.randn(2, 2)}
    shapes = {n: tuple(t.shape) for n, t in made.items()}
    write_tensors(tmp_path / "x.safetensors", shapes, made.__getitem__, {"a": "BF16", "b": "F32"})
    found = load_file(tmp_path / "x.safetensors")
    assert torch.equal(found["a"], made["a"].bfloat16()) and torch.equal(found["b"], made["b"])
