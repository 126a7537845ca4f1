"""What reports show, against numbers worked out by hand."""

from __future__ import annotations

import pytest

import hybridc
from hybridc.report.summary import count, letters, mixers, short, size, summarise

SPEC = """model m {
  block A { x += rmsnorm() >> attention(heads=4, kv_heads=2) }
  shared block Ff { x += rmsnorm() >> swiglu(100) >> scale(0.5) }
  embed = embedding(50, 64)
  layers = (A Ff) * 3 | A
  head = lm_head(50, tied=true)
}
"""
ATTENTION = 64 * (64 + 2 * 32) + 64 * 64
FEED = 64 * 200 + 100 * 64


def test_parameters_count_shared_sets_and_tied_tensors_once() -> None:
    report = summarise(hybridc.compile(SPEC).ir)
    blocks = {b.name: b for b in report.blocks}
    assert blocks["A"].parameters == 64 + ATTENTION
    assert (blocks["A"].layers, blocks["A"].sets) == (4, 4)
    assert (blocks["Ff"].layers, blocks["Ff"].sets) == (3, 1)
    assert blocks["Ff"].all_parameters == 64 + FEED
    assert blocks["head"].all_parameters == 0
    assert report.parameters == 50 * 64 + 4 * (64 + ATTENTION) + 64 + FEED


def test_totals_are_the_sums_of_the_rows() -> None:
    report = summarise(hybridc.compile(SPEC).ir, batch=2, seq=128)
    assert sum(b.all_parameters for b in report.blocks) == report.parameters
    assert sum(b.all_flops for b in report.blocks) == pytest.approx(report.flops_per_token)
    assert sum(b.all_activations for b in report.blocks) == pytest.approx(report.activation_bytes)
    assert sum(b.all_caches for b in report.blocks) == pytest.approx(report.cache_bytes)
    for block in report.blocks:
        assert sum(o.parameters for o in block.ops) == block.parameters
        assert sum(o.flops_per_token for o in block.ops) == pytest.approx(block.flops_per_token)


def test_caches_are_keys_and_values_of_each_layer() -> None:
    report = summarise(hybridc.compile(SPEC).ir, batch=3, seq=128)
    assert report.cache_bytes == 4 * 3 * 128 * 2 * (2 * 16) * 4


def test_stages_are_folded_apart() -> None:
    report = summarise(hybridc.compile(SPEC).ir)
    assert [[(r.unit, r.count) for r in stage] for stage in report.stages] == [[(("A", "Ff"), 3)], [(("A",), 1)]]


def test_ops_without_parameters_are_one_row() -> None:
    (block,) = [b for b in summarise(hybridc.compile(SPEC).ir).blocks if b.name == "Ff"]
    assert [(o.name, o.kind) for o in block.ops] == [
        ("rmsnorm", "rmsnorm"),
        ("swiglu", "mlp"),
        ("scale, add", "glue"),
    ]


def test_mixers_leave_out_norms() -> None:
    block = hybridc.compile(SPEC).ir.by_name["A"]
    assert mixers(block) == (("attention", "attention"),)


def test_letters_are_distinct() -> None:
    assert letters(["Ssm", "SsmMoe", "Attn", "Ssn", "mlp"]) == {
        "Ssm": "S",
        "SsmMoe": "SM",
        "Attn": "A",
        "Ssn": "S2",
        "mlp": "M",
    }


def test_numbers() -> None:
    assert count(1235814400) == "1,235,814,400"
    assert [size(n) for n in (0, 512, 1024, 1.5 * 2**20, 3 * 2**40)] == ["-", "512 B", "1.0 KiB", "1.5 MiB", "3.0 TiB"]
    assert [short(n) for n in (12, 1024, 144_000, 1_235_814_400)] == ["12", "1,024", "144 k", "1.24 B"]
