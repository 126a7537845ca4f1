"""The header of a GGUF file: its metadata, and where which tensor lies.

Layout (version 2 and 3, little-endian; the ggml project's `docs/gguf.md`): magic, version, number of tensors, number of
metadata entries, the entries, one description a tensor, padding, data. Every length in the file is held against what
is left of the file before anything is made of that length: a header that lies costs no memory and no time.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError

MAGIC = b"GGUF"
VERSIONS = (2, 3)

MAX_ITEMS = 1 << 22
"""Elements of a list in the metadata; the longest are those of a vocabulary."""

MAX_TEXT = 1 << 24
"""Bytes of a text in the metadata; the longest are chat templates."""

MAX_DIMS = 4
MAX_ELEMENTS = 1 << 48

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The file's numbers of scalar kinds, as struct's letters."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the file: torch's order of dimensions (rows first), the kind of its numbers, its place in bytes."""

    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int
    size: int


@dataclass(frozen=True)
class GgufFile:
    """A header: metadata by key, tensors by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def broken(label: str, help: str = "download the file again") -> DiagnosticError:
    """The error for a file that is no GGUF file, or a damaged one (HYB520)."""
    return DiagnosticError([Diagnostic("HYB520", NO_SPAN, label, help)])


def shown(value: object) -> str:
    """A value of the file for a message: short, and without characters that act on a terminal."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_gguf(path: Path) -> bool:
    """Whether this is a file with GGUF's magic, or one that says by its name that it should be."""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC or path.suffix.lower() == ".gguf"
    except OSError:
        return path.suffix.lower() == ".gguf"


def open_gguf(path: Path) -> BinaryIO:
    """The file, opened. Raises DiagnosticError (HYB520) where it cannot be."""
    try:
        if path.is_dir():
            raise broken(f"`{path}` is a folder", "name a .gguf file, or use `hybridc import hf` for a folder")
        if path.exists() and not path.is_file():
            raise broken(f"`{path}` is no plain file", "name a .gguf file")
        return open(path, "rb")
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        cause = getattr(error, "strerror", None) or error
        raise broken(f"`{path}` cannot be read: {cause}", "name a .gguf file") from error


def read_file(path: Path) -> GgufFile:
    """The header of a file. Raises DiagnosticError (HYB520) for what is none, or is cut off."""
    with open_gguf(path) as file:
        try:
            return _Reader(file, os.fstat(file.fileno()).st_size).read(path)
        except OSError as error:
            raise broken(f"`{path}` cannot be read: {error.strerror or error}", "name a .gguf file") from error


class _Reader:
    """Takes a header apart, front to back."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.at = file, size, 0

    def read(self, path: Path) -> GgufFile:
        if self.size < len(MAGIC) or self.take(len(MAGIC)) != MAGIC:
            raise broken(f"`{path.name}` is no GGUF file: it does not start with `GGUF`", "name a .gguf file")
        version = self.number("I")
        if version not in VERSIONS:
            big = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            cause = "big-endian" if big else f"of GGUF version {version}"
            raise broken(f"`{path.name}` is {cause}", "little-endian files of version 2 and 3 are read")
        tensors, entries = self.count("tensors", 24), self.count("metadata entries", 13)
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self.text()
            if key in metadata:
                raise broken(f"the metadata entry {shown(key)} stands twice")
            metadata[key] = self.value(self.number("I"), key)
        raw = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            raise broken(f"the alignment is {shown(alignment)}", "it is a power of two")
        start = -(-self.at // alignment) * alignment
        placed: dict[str, TensorInfo] = {}
        for info in raw:
            if info.name in placed:
                raise broken(f"the tensor {shown(info.name)} stands twice")
            if info.offset > self.size - start or info.size > self.size - start - info.offset:
                need = start + info.offset + info.size
                raise broken(f"the tensor {shown(info.name)} ends at byte {need}, and the file at byte {self.size}")
            placed[info.name] = replace(info, offset=start + info.offset)
        return GgufFile(path, metadata, placed)

    def take(self, count: int) -> bytes:
        if count > self.size - self.at:
            raise broken(f"the file ends in the middle of its header, at byte {self.size}")
        data = self.file.read(count)
        if len(data) != count:
            raise broken("the file became shorter while it was read")
        self.at += count
        return data

    def number(self, letter: str) -> Any:
        return struct.unpack("<" + letter, self.take(struct.calcsize("<" + letter)))[0]

    def text(self) -> str:
        length = self.number("Q")
        if length > min(MAX_TEXT, self.size - self.at):
            raise broken(f"a text of {length} bytes is announced at byte {self.at} of {self.size}")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise broken(f"the text at byte {self.at - length} is not UTF-8") from error

    def count(self, what: str, least: int) -> int:
        """A number of things that take `least` bytes each or more."""
        number = int(self.number("Q"))
        if number > (self.size - self.at) // least:
            raise broken(f"{number} {what} are announced, and the file has {self.size} bytes")
        return number

    def value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise broken(f"the metadata entry {shown(key)} is of the unknown kind {kind}")
        inner = self.number("I")
        if inner == _STRING:
            return [self.text() for _ in range(self.items(key, 8))]
        if inner not in _SCALARS:
            raise broken(f"the metadata entry {shown(key)} is a list of kind {inner}", "lists hold texts or numbers")
        letter = _SCALARS[inner]
        width = struct.calcsize("<" + letter)
        length = self.items(key, width)
        return list(struct.unpack(f"<{length}{letter}", self.take(length * width)))

    def items(self, key: str, least: int) -> int:
        length = self.count(f"items of {shown(key)}", least)
        if length > MAX_ITEMS:
            raise broken(f"the metadata entry {shown(key)} has {length} items", f"{MAX_ITEMS} are read at most")
        return length

    def tensor(self) -> TensorInfo:
        """A description; its offset still counts from the start of the data."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        name, dims = self.text(), self.number("I")
        if not 1 <= dims <= MAX_DIMS:
            raise broken(f"the tensor {shown(name)} has {dims} dimensions")
        shape = tuple(reversed([int(self.number("Q")) for _ in range(dims)]))
        elements = math.prod(shape)
        if not 0 < elements <= MAX_ELEMENTS:
            raise broken(f"the tensor {shown(name)} has the shape {list(shape)}")
        number, offset = self.number("I"), int(self.number("Q"))
        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            label = f"the tensor {shown(name)} is in the number format {number}, which the package `gguf` does not know"
            raise broken(label, "install a newer `gguf`, or convert the file to another quantization") from error
        block, width = GGML_QUANT_SIZES[kind]
        if shape[-1] % block:
            raise broken(
                f"the tensor {shown(name)} has rows of {shape[-1]} in {kind.name}, whose blocks are of {block}"
            )
        return TensorInfo(name, shape, kind.name, offset, elements // block * width)
