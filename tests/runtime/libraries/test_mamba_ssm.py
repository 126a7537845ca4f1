"""mamba-ssm's sources, behind our adapters, compute what our ops do."""

from tests.runtime.libraries.isolated import check


def test_mamba_ssm():
    check("mamba_ssm", least=32)
