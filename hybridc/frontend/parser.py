"""Spec text to AST. All syntax errors of a text are reported in one go: a statement that does not parse is left out."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Iterator
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedToken, VisitError
from lark.lexer import Lexer

from hybridc.diagnostics import Sink
from hybridc.frontend import ast, remedies, tables
from hybridc.frontend.depth import MAX_NESTING, too_deep
from hybridc.frontend.layout import MAX_ERRORS
from hybridc.frontend.lexemes import Lexeme
from hybridc.frontend.tokens import tokenize
from hybridc.frontend.tree import Misplaced, ToAst

_RENAMED = {"AUGMENT": "_AUGMENT", "BAR": "_BAR", "PIPE": "_PIPE", "RANGE": "_RANGE", "NL": "_NL"}


class _Given(Lexer):
    """Hands lark the tokens that `tokenize` made."""

    def __init__(self, _: object) -> None:
        pass

    def lex(self, data: Any) -> Iterator[Token]:  # type: ignore[override]
        return iter(data)


@functools.cache
def _lark() -> Lark:
    """The parser, made or loaded once a process."""
    grammar = pkgutil.get_data("hybridc.frontend", "grammar.lark")
    if grammar is None:
        raise FileNotFoundError("grammar.lark")
    return tables.parser(grammar.decode("utf-8"), _Given)


def _token(lexeme: Lexeme) -> Token:
    span = lexeme.span
    kind = _RENAMED.get(lexeme.type, lexeme.type)
    return Token(kind, lexeme.text, span.start, span.line, span.col, span.end_line, span.end_col, span.end)


def parse(text: str, file: str = "<spec>", sink: Sink | None = None) -> ast.Spec:
    """The AST of a spec's text.

    With a `sink`, mistakes go there and the AST holds what could be read; without, they raise DiagnosticError.
    """
    own = sink if sink is not None else Sink()
    own.sources[file] = text
    lexemes, _ = tokenize(text, file, own)
    spec = _recovering(lexemes, file, own)
    own.sort()
    if sink is None:
        own.check()
    return spec


def _recovering(lexemes: list[Lexeme], file: str, sink: Sink) -> ast.Spec:
    """Parses; on an error reports it, takes the statement out and parses again."""
    hole = -2
    for _ in range(MAX_ERRORS - min(len(sink.errors), MAX_ERRORS - 1)):
        try:
            made = ToAst(file).transform(_lark().parse([_token(x) for x in lexemes]))
            if not isinstance(made, ast.Spec):
                raise TypeError(f"the grammar made a {type(made).__name__}")
            if deep := too_deep(made):
                label = f"more than {MAX_NESTING} levels of nesting"
                raise Misplaced("HYB002", deep.span, label, "name inner parts with lets")
            return made
        except UnexpectedToken as error:
            at = _position(lexemes, error.token)
            # a bracket that closes nothing, right behind a statement that was taken out, belonged to that
            if not (remedies.is_stray(lexemes, at) and _start(lexemes, at) in (hole, hole + 1)):
                remedies.report(lexemes, at, set(error.accepts or error.expected), file, sink)
        except (VisitError, Misplaced) as error:
            misplaced = error.orig_exc if isinstance(error, VisitError) else error
            if not isinstance(misplaced, Misplaced):
                raise
            code, span, label, help = misplaced.args
            sink.report(code, span, label, help)
            at = next((n for n, x in enumerate(lexemes) if x.span.start >= span.start), len(lexemes) - 1)
        rest = _without_statement(lexemes, at)
        if len(rest) == len(lexemes):
            break
        hole = _start(lexemes, at)
        lexemes = rest
    return ast.Spec()


def _position(lexemes: list[Lexeme], token: Token) -> int:
    if token.type == "$END":
        return len(lexemes)
    return next((n for n, x in enumerate(lexemes) if x.span.start == token.start_pos and x.text == token), len(lexemes))


def _start(lexemes: list[Lexeme], at: int) -> int:
    """The first token of the statement around `at`."""
    start = min(at, len(lexemes) - 1)
    while start > 0 and lexemes[start - 1].type not in ("NL", "LBRACE", "RBRACE"):
        start -= 1
    return start


def _without_statement(lexemes: list[Lexeme], at: int) -> list[Lexeme]:
    """The tokens without the statement around `at`: from the newline or brace before it to the one behind, with the
    braces inside it."""
    at = min(at, len(lexemes) - 1)
    if at < 0:
        return lexemes
    start = at
    if lexemes[at].type == "RBRACE":
        previous = lexemes[at - 1].type if at else "NL"
        if previous in ("NL", "LBRACE", "RBRACE"):
            return lexemes[:at] + lexemes[at + 1 :]
        start = at - 1
    start = _start(lexemes, start)
    end, depth = start, 0
    while end < len(lexemes):
        kind = lexemes[end].type
        if kind == "LBRACE":
            depth += 1
        elif kind == "RBRACE":
            if depth == 0:
                break
            depth -= 1
            if depth == 0:
                end += 1
                break
        elif kind == "NL" and depth == 0 and end > start:
            break
        end += 1
    return lexemes[:start] + lexemes[max(end, start + 1) :]
