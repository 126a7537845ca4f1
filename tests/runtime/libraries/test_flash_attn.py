"""flash-attn's sources, behind our adapter, compute what our op does."""

from tests.runtime.libraries.isolated import check


def test_flash_attn():
    check("flash_attn", least=53)
