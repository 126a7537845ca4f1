"""Formats of numbers, held against transformers' own dequantisation; reading in parts; files that shrink."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from transformers.integrations.gguf.dequant import dequantize

import hybridc.checkpoints.gguf_tensors as gguf_tensors
from hybridc.checkpoints.gguf_tensors import GgufTensors, dequantise, readable
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.gguf import read
from tests.frontend.gguf.made import blocks, model, write


@pytest.mark.parametrize("kind", [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K], ids=lambda k: k.name)
def test_blocks(kind: Kind) -> None:
    rows = blocks((3, 512), kind)
    want = dequantize(torch.from_numpy(rows.reshape(-1)), int(kind)).reshape(3, 512)
    torch.testing.assert_close(torch.from_numpy(dequantise(rows, kind.name)), want, rtol=1e-6, atol=1e-7)


def test_what_can_be_read() -> None:
    can = {k.name for k in Kind if readable(k.name)}
    assert {"F32", "F16", "BF16", "F64", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"} <= can
    assert not {"I8", "I32", "Q8_K"} & can


def test_doubles() -> None:
    rows = np.array([[0.1, -2.0]]).view(np.uint8)
    assert dequantise(rows, "F64").tolist() == np.array([[0.1, -2.0]], dtype=np.float32).tolist()


@pytest.mark.parametrize("moe", [False, True])
def test_parts_make_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moe: bool) -> None:
    write(tmp_path / "m.gguf", model(**({"num_local_experts": 3, "num_experts_per_tok": 2} if moe else {})), Kind.Q8_0)
    imported = read(tmp_path / "m.gguf")
    with GgufTensors(imported) as tensors:
        whole = {name: tensors.tensor(name) for name in tensors.names()}
        assert all(tuple(t.shape) == tensors.shape(n) and tensors.format(n) == "F32" for n, t in whole.items())
        monkeypatch.setattr(gguf_tensors, "CHUNK", 96)
        assert all(torch.equal(tensors.tensor(name), t) for name, t in whole.items())


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", model())
    with GgufTensors(read(tmp_path / "m.gguf")) as tensors:
        data = (tmp_path / "m.gguf").read_bytes()
        with open(tmp_path / "m.gguf", "r+b") as file:
            file.truncate(len(data) // 2)
        with pytest.raises(DiagnosticError) as error:
            for name in tensors.names():
                tensors.tensor(name)
    assert error.value.diagnostics[0].code == "HYB520"
