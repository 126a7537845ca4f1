"""The header's reader: what it reads, and files that are damaged or made to harm."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader, GGUFWriter

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.gguf.file import MAX_ITEMS, is_gguf, read_file
from tests.frontend.gguf.made import model, write


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def header(
    entries: bytes = b"", count: int = 0, tensors: bytes = b"", tensor_count: int = 0, version: int = 3
) -> bytes:
    """A file made by hand, by the format's description."""
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, count) + entries + tensors


def entry(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str | bytes, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def fails(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(DiagnosticError) as error:
        read_file(path)
    (found,) = error.value.diagnostics
    assert found.code == "HYB520" and found.help
    return found.label


def test_values_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -100)
    writer.add_uint16("a.uint16", 60000)
    writer.add_int16("a.int16", -30000)
    writer.add_uint32("a.uint32", 4000000000)
    writer.add_int32("a.int32", -2000000000)
    writer.add_uint64("a.uint64", 1 << 60)
    writer.add_int64("a.int64", -(1 << 60))
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "grün")
    writer.add_array("a.texts", ["x", "", "ü"])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_file(path)
    theirs = {k: f.contents() for k, f in GGUFReader(path).fields.items() if not k.startswith("GGUF.")}
    assert found.metadata == theirs and len(theirs) > 14


def test_tensors_lie_where_the_package_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path, model(), **{"general.alignment": 64})
    ours = {t.name: (t.shape, t.kind, t.offset, t.size) for t in read_file(path).tensors.values()}
    theirs = {
        t.name: (tuple(reversed(t.shape.tolist())), t.tensor_type.name, t.data_offset, t.n_bytes)
        for t in GGUFReader(path).tensors
    }
    assert ours == theirs


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "does not start"),
        (b"GGU", "does not start"),
        (b"PK\x03\x04" + bytes(60), "does not start"),
        (b"GGUF", "ends in the middle"),
        (header(version=1), "version 1"),
        (header(version=99), "version 99"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (header(count=1 << 62), "4611686018427387904 metadata entries"),
        (header(tensor_count=1 << 40), "tensors are announced"),
        (header(struct.pack("<Q", 1 << 61) + bytes(40), 1), "a text of"),
        (header(entry("k", 8, text(b"\xff\xfe")), 1), "not UTF-8"),
        (header(entry("k", 77, bytes(8)), 1), "unknown kind 77"),
        (header(entry("k", 9, struct.pack("<IQ", 4, 1 << 60)), 1), "items of 'k'"),
        (header(entry("k", 9, struct.pack("<IQ", 9, 1) + bytes(32)), 1), "list of kind 9"),
        (header(entry("k", 9, struct.pack("<IQ", 0, MAX_ITEMS + 1) + bytes(MAX_ITEMS + 1)), 1), "has 4194305 items"),
        (header(entry("k", 4, bytes(4)) * 2, 2), "'k' stands twice"),
        (header(entry("general.alignment", 4, struct.pack("<I", 24)), 1), "alignment is 24"),
        (header(entry("general.alignment", 4, bytes(4)), 1), "alignment is 0"),
        (header(entry("general.alignment", 8, text("x")), 1), "alignment is 'x'"),
        (header(tensors=tensor("t", (4,)) * 2 + bytes(64), tensor_count=2), "'t' stands twice"),
        (header(tensors=tensor("t", (1 << 40, 1 << 40)), tensor_count=1), "has the shape"),
        (header(tensors=tensor("t", (0,)), tensor_count=1), "has the shape"),
        (header(tensors=tensor("t", (1,) * 9), tensor_count=1), "9 dimensions"),
        (header(tensors=tensor("t", (4,), kind=4), tensor_count=1), "number format 4"),
        (header(tensors=tensor("t", (33,), kind=8), tensor_count=1), "blocks are of 32"),
        (header(tensors=tensor("t", (1 << 20,)), tensor_count=1), "the file at byte"),
        (header(tensors=tensor("t", (4,), offset=1 << 63), tensor_count=1), "the file at byte"),
    ],
)  # fmt: skip
def test_broken_headers(tmp_path: Path, data: bytes, cause: str) -> None:
    assert cause in fails(tmp_path / "m.gguf", data)


def test_names_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    label = fails(tmp_path / "m.gguf", header(tensors=tensor("\x1b[2J../../x\r", (1 << 20,)), tensor_count=1))
    assert "\x1b" not in label and "\r" not in label


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.gguf", Path("a\0b")):
        with pytest.raises(DiagnosticError) as error:
            hybridc.from_gguf(path)
        assert error.value.diagnostics[0].code == "HYB520"


def test_is_gguf(tmp_path: Path) -> None:
    (tmp_path / "named").write_bytes(b"GGUF")
    (tmp_path / "cut.gguf").write_bytes(b"")
    (tmp_path / "spec.hyb").write_text("model m {}")
    (tmp_path / "folder.gguf").mkdir()
    assert [is_gguf(tmp_path / n) for n in ("named", "cut.gguf", "spec.hyb", "folder.gguf", "none")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_damaged_files_end_in_diagnostics(tmp_path: Path) -> None:
    """Cut at any place, and with any bytes changed, a file is read or refused, and quickly."""
    theirs = model(num_hidden_layers=1)
    tokens: dict[str, Any] = {"tokenizer.ggml.tokens": ["a", "b", "ab"], "tokenizer.ggml.merges": ["a b"]}
    write(tmp_path / "m.gguf", theirs, **tokens)
    whole = (tmp_path / "m.gguf").read_bytes()
    end = whole.index(b"output.weight") + 100
    rng = random.Random(0)
    cuts = [whole[:n] for n in range(0, end, 7)]
    hurt = []
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 8))):
            data[rng.randrange(end)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        hurt.append(bytes(data))
    start = time.monotonic()
    for data in cuts + hurt:
        (tmp_path / "h.gguf").write_bytes(data)
        try:
            hybridc.import_gguf(tmp_path / "h.gguf")
        except DiagnosticError as error:
            assert all(d.help for d in error.diagnostics)
    assert time.monotonic() - start < 60
