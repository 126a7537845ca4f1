"""fla's sources, behind our adapters, compute what our ops do."""

from tests.runtime.libraries.isolated import check


def test_fla():
    check("fla", least=34)
