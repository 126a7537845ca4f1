"""Llama 3's scaling, found again in the divisors that transformers' formula makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.gguf.rope import rope_settings, short
from hybridc.frontend.hf.config import Config


def divisors(head_dim: int, theta: float, **settings: Any) -> tuple[float, ...]:
    rope = {"rope_type": "llama3", "rope_theta": theta, **settings}
    config = LlamaConfig(head_dim=head_dim, rope_parameters=rope, max_position_embeddings=131072)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = theta ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    return tuple((plain / scaled.double()).float().tolist())


def found(head_dim: int, theta: float, values: tuple[float, ...], **more: Any) -> Any:
    c = Config({"llama.rope.freq_base": theta, **more}, "llama")
    out = rope_settings(c, "llama", head_dim, values)
    c.done()
    return out["rope_scaling"]


@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize(
    ("factor", "low", "high", "original"), [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (4.0, 2.0, 16.0, 4096)]
)
def test_settings_are_found_again(head_dim: int, factor: float, low: float, high: float, original: int) -> None:
    settings = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high}
    values = divisors(head_dim, 500000.0, **settings, original_max_position_embeddings=original)
    scaling = found(head_dim, 500000.0, values, **{"llama.rope.scaling.original_context_length": original})
    assert scaling["factor"] == pytest.approx(factor, rel=1e-5)
    again = {k: v for k, v in scaling.items() if k != "rope_type"}
    torch.testing.assert_close(
        torch.tensor(divisors(head_dim, 500000.0, **again)), torch.tensor(values), rtol=1e-4, atol=0.0
    )


def test_an_unknown_original_context_makes_the_same_divisors() -> None:
    settings = {
        "factor": 4.0,
        "low_freq_factor": 2.0,
        "high_freq_factor": 16.0,
        "original_max_position_embeddings": 4096,
    }
    values = divisors(128, 500000.0, **settings)
    again = {k: v for k, v in found(128, 500000.0, values).items() if k != "rope_type"}
    assert again["original_max_position_embeddings"] == 8192
    torch.testing.assert_close(
        torch.tensor(divisors(128, 500000.0, **again)), torch.tensor(values), rtol=1e-4, atol=0.0
    )


def test_no_scaling() -> None:
    assert found(16, 10000.0, (1.0,) * 8) is None


@pytest.mark.parametrize("values", [(1.0,) * 7, (1.0, 3.0, 1.0, 2.0) * 2, (0.5,) * 8, (float("nan"),) * 8])
def test_other_divisors_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(DiagnosticError) as error:
        found(16, 10000.0, values)
    assert "rope_freqs.weight" in error.value.diagnostics[0].label


def test_short() -> None:
    assert short(9.999999747378752e-06) == 1e-05
    assert short(100000.0) == 100000.0
    assert short(1 / 3) == pytest.approx(1 / 3, rel=1e-7)
