"""Numbers of a GGUF file as the tensors of a public checkpoint, dequantised one at a time.

The file is read, not mapped: one that is cut off under the reader is an error, not a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from hybridc.checkpoints.names import folded
from hybridc.diagnostics import NO_SPAN, Sink
from hybridc.frontend.gguf import ImportedGguf
from hybridc.frontend.gguf.file import TensorInfo, broken, open_gguf, shown
from hybridc.frontend.gguf.names import Piece, unused

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 22
"""Elements that are dequantised at once: what the arithmetic needs on the side stays small beside a tensor."""

SHOWN = 50
"""Patterns of names listed in a diagnostic."""


class GgufTensors:
    """The tensors of a file under their public names, as `hybridc.checkpoints.weights.Files` has those of a folder."""

    def __init__(self, imported: ImportedGguf) -> None:
        """Raises DiagnosticError (HYB510, HYB511, HYB522) that lists all tensors which are missing, do not fit, are
        left over, or are in a format that cannot be read."""
        self.imported = imported
        _check(imported)
        self.file: BinaryIO = open_gguf(imported.file.path)

    def __enter__(self) -> GgufTensors:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def names(self) -> set[str]:
        return set(self.imported.pieces)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.imported.pieces[name].shape

    def format(self, name: str) -> str:
        return "F32"

    def tensor(self, name: str) -> Tensor:
        """A tensor in fp32, in its public shape and order of rows; it owns its memory."""
        import numpy as np
        import torch

        piece = self.imported.pieces[name]
        info = self.imported.file.tensors[piece.tensor]
        shape = info.shape if piece.expert is None else info.shape[1:]
        value = np.empty(shape, dtype=np.float32)
        rows = value.reshape(-1, shape[-1])
        at = 0
        for part in self._rows(info, piece):
            rows[at : at + len(part)] = part
            at += len(part)
        return torch.from_numpy(_apart(value, piece.heads).reshape(piece.shape))

    def _rows(self, info: TensorInfo, piece: Piece) -> Iterator[Any]:
        """Rows of the tensor, or of one expert's part, in fp32, some at a time."""
        import numpy as np

        width = info.shape[-1]
        count = int(np.prod(info.shape)) // width
        per_row = info.size // count
        first = 0
        if piece.expert is not None:
            count //= info.shape[0]
            first = piece.expert * count
        step = max(1, CHUNK // width)
        for start in range(first, first + count, step):
            rows = min(step, first + count - start)
            self.file.seek(info.offset + start * per_row)
            data = self.file.read(rows * per_row)
            if len(data) != rows * per_row:
                raise broken(f"the file ends in the middle of the tensor {shown(info.name)}")
            yield dequantise(np.frombuffer(data, dtype=np.uint8).reshape(rows, per_row), info.kind)


def dequantise(rows: Any, kind: str) -> Any:
    """Rows of bytes, uint8 [n, bytes], as numbers, fp32 [n, width]. Raises NotImplementedError for an unknown kind."""
    import numpy as np
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    if kind == "F64":
        return rows.view(np.float64).astype(np.float32)
    with np.errstate(all="ignore"):  # a scale that is no number makes numbers that are none, as in the file
        return dequantize(rows, GGMLQuantizationType[kind])


def readable(kind: str) -> bool:
    """Whether the package `gguf` turns this format of numbers back into fp32."""
    import numpy as np
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        dequantise(np.zeros((1, GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]), dtype=np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _apart(value: Any, heads: int) -> Any:
    """Rows of heads with rotary pairs side by side (2i, 2i+1), so that pairs are (i, i + half): the public order."""
    if not heads:
        return value
    pairs = value.reshape(heads, value.shape[0] // heads // 2, 2, *value.shape[1:])
    return pairs.swapaxes(1, 2).reshape(value.shape)


def _check(imported: ImportedGguf) -> None:
    tensors = imported.file.tensors
    pieces = imported.pieces
    missing = {p.tensor for p in pieces.values() if p.tensor not in tensors}
    experts = imported.config.get("num_local_experts", 0)
    misshapen = set()
    for piece in pieces.values():
        if piece.tensor in missing:
            continue
        want = piece.shape if piece.expert is None else (experts, *piece.shape)
        have = tensors[piece.tensor].shape
        if have != want:
            misshapen.add(f"{piece.tensor} {list(have)}, wanted {list(want)}")
    used = {p.tensor for p in pieces.values()} - missing
    kinds = {tensors[n].kind for n in used}
    formats = {k for k in kinds if not readable(k)}
    sink = Sink()
    belongs = "the file is damaged, or of a kind of model that is not read"
    for code, names, what, help in (
        ("HYB510", missing, "missing from the file", belongs),
        ("HYB511", misshapen, "of another shape", belongs),
        ("HYB511", set(unused(imported.config, imported.file)), "in the file, but not in the model", belongs),
        (
            "HYB522",
            {f"{n} ({tensors[n].kind})" for n in used if tensors[n].kind in formats},
            "in a format that the package `gguf` cannot dequantise",
            "use a file in another quantization, such as Q8_0",
        ),
    ):
        if names:
            patterns = [p.encode("ascii", "backslashreplace").decode() for p in folded(names)]
            more = f" and {len(patterns) - SHOWN} more patterns" if len(patterns) > SHOWN else ""
            count = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
            sink.report(code, NO_SPAN, f"{count} {what}: {', '.join(patterns[:SHOWN])}{more}", help)
    sink.check()
