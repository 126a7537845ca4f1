"""A safetensors file written tensor by tensor: the library's own writer wants all of them in memory at once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1}
"""Bytes of a number, by the format's name in the file."""

FORMATS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "uint8": "U8"}
"""Formats that are written, by torch's names of dtypes."""


def dtype_of(tensor: Tensor) -> str:
    """torch's name of a tensor's dtype, `bfloat16`."""
    return str(tensor.dtype).removeprefix("torch.")


def main_dtype(tensors: Iterable[Tensor]) -> str:
    """The dtype that most of the tensors' numbers are in, bytes aside; float32 where there are none."""
    counts: dict[str, int] = {}
    for tensor in tensors:
        if tensor.is_floating_point():
            counts[dtype_of(tensor)] = counts.get(dtype_of(tensor), 0) + tensor.numel()
    return max(counts, key=lambda name: counts[name], default="float32")


def write_tensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    tensor: Callable[[str], Tensor],
    format: str | Mapping[str, str],
) -> None:
    """Writes the tensors of these names and shapes, which `tensor(name)` gives in turn, all in one format or each in
    that of its name.

    The layout is the format's: length of the header in 8 bytes, the header as JSON, padded so that the numbers start
    at a multiple of 8, the numbers (safetensors' README). Raises OSError; ValueError where a tensor has another shape.
    """
    import torch

    dtypes = {format: getattr(torch, name) for name, format in FORMATS.items()}
    formats = dict.fromkeys(shapes, format) if isinstance(format, str) else format
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + WIDTHS[formats[name]] * math.prod(shape)
        header[name] = {"dtype": formats[name], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name, shape in shapes.items():
            value = tensor(name)
            if tuple(value.shape) != tuple(shape):
                raise ValueError(f"{name} has the shape {list(value.shape)}, announced as {list(shape)}")
            numbers = value.detach().to(device="cpu", dtype=dtypes[formats[name]]).contiguous().reshape(-1)
            file.write(numbers.view(torch.uint8).numpy().data)
