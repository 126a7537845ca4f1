"""Generated and mutated specs: an AST or a diagnostic, never another exception, never slow."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

import hybridc
from hybridc.diagnostics import DiagnosticError, Sink
from hybridc.diagnostics.render import render_json, render_text
from hybridc.frontend.document import format_source, print_spec
from hybridc.frontend.parser import parse
from hybridc.frontend.tokens import tokenize
from tests.conftest import EXAMPLES
from tests.frontend.strategies import mutated, specs

LIMIT = 1.0
"""Seconds that any one spec may take."""


def in_time(function):
    """Runs it; a second try decides where the first was slow, since a collection of garbage may fall into either."""
    for last in (False, True):
        start = time.process_time()
        function()
        if time.process_time() - start < LIMIT:
            return
        assert not last


@given(specs)
@settings(max_examples=EXAMPLES)
def test_print_and_parse_are_inverse(spec):
    text = print_spec(spec)

    def check():
        assert parse(text) == spec
        formatted = format_source(text)
        assert format_source(formatted) == formatted
        assert parse(formatted) == spec

    in_time(check)


@given(specs)
@settings(max_examples=EXAMPLES)
def test_the_checker_survives_generated_specs(spec):
    def check():
        sink = hybridc.check(spec)
        render_text(sink.diagnostics, sink.sources)

    in_time(check)


def comments(text):
    """What the comments of a text say, in order."""
    return [comment.text[1:].strip() for comment in tokenize(text, "", Sink())[1]]


def survives(text):
    sink = Sink()
    parse(text, sink=sink)
    try:
        formatted = format_source(text)
    except DiagnosticError:
        assert sink.errors
    else:
        assert not sink.errors
        assert format_source(formatted) == formatted
        assert parse(formatted) == parse(text)
        assert comments(formatted) == comments(text)
    checked = hybridc.check(text if "{" in text else text + "\n")
    rendered = render_text(checked.diagnostics, checked.sources)
    render_json(checked.diagnostics)
    assert bool(rendered) == bool(checked.diagnostics)
    assert all(c.isprintable() or c == "\n" for c in rendered)


@given(mutated())
@settings(max_examples=EXAMPLES)
def test_mutated_specs(text):
    in_time(lambda: survives(text))


@given(st.text(max_size=200))
@settings(max_examples=EXAMPLES)
def test_any_text(text):
    in_time(lambda: survives(text))
