"""A real trained model from a GGUF file. Needs a download of 93 MB, so it runs in `make test-all` only, where it fails,
and is not skipped, when there is no file to be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.smollm2 import LIMIT, ROOT, fetch, ours, perplexity, sample, theirs


@pytest.fixture(scope="module")
def file() -> Path:
    return fetch(ROOT / "build" / "smollm2")


@pytest.mark.download
def test_perplexity_is_that_of_transformers(file: Path) -> None:
    net, ids = ours(file)
    reference, their_ids = theirs(file)
    assert ids == their_ids
    mine, other = perplexity(net, ids), perplexity(reference, ids)
    assert mine == pytest.approx(other, rel=LIMIT)
    assert mine == pytest.approx(other, rel=1e-4), "fp32 on both sides"
    assert mine < 40, "a trained model knows English"


@pytest.mark.download
def test_it_speaks_english(file: Path) -> None:
    assert "Paris" in sample(file, "The capital of France is", 20)
    question = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
    answer = sample(file, question, 80).removeprefix(question)
    assert "light" in answer and "scatter" in answer
