"""causal-conv1d's sources, behind our adapter, compute what our op does."""

from tests.runtime.libraries.isolated import check


def test_causal_conv1d():
    check("causal_conv1d", least=32)
