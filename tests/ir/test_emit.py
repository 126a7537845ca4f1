"""Pieces of emitted text."""

import pytest

from hybridc.ir.emit import broken


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("y = f(a, b)", ["y = f(a, b)"]),
        ("y = function(argument, (1, 2))", ["y = function(", "    argument, (1, 2)", ")"]),
        ("y = function(argument, (1, 2))  # rows", ["y = function(  # rows", "    argument, (1, 2)", ")"]),
        ("y = first(argument) + second(argument)", ["y = first(argument) + second(argument)"]),
        ("x = a_name_without_any_call_at_all", ["x = a_name_without_any_call_at_all"]),
    ],
)
def test_long_calls_are_broken_and_nothing_else(line, lines):
    assert broken(line, 20) == lines
