"""Spec text to AST. All syntax errors of a text are reported in one go: a statement that does not parse is left out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedToken, VisitError
from lark.lexer import Lexer

from hybridc.diagnostics import Sink, Span, nearest
from hybridc.frontend import ast
from hybridc.frontend.tokens import KEYWORDS, OPERATORS, Lexeme, tokenize
from hybridc.frontend.tree import Misplaced, ToAst

MAX_ERRORS = 20

_RENAMED = {"AUGMENT": "_AUGMENT", "BAR": "_BAR", "PIPE": "_PIPE", "RANGE": "_RANGE", "NL": "_NL"}


class _Given(Lexer):
    """Hands lark the tokens that `tokenize` made."""

    def __init__(self, _: object) -> None:
        pass

    def lex(self, data: Any) -> Iterator[Token]:  # type: ignore[override]
        return iter(data)


@functools.cache
def _lark() -> Lark:
    """The parser's tables, made once a process (about 80 ms)."""
    grammar = files("hybridc.frontend").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=_Given, propagate_positions=True)


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
    for _ in range(MAX_ERRORS):
        try:
            tree = _lark().parse([_token(x) for x in lexemes])
            made = ToAst(file).transform(tree)
            assert isinstance(made, ast.Spec)
            return made
        except UnexpectedToken as error:
            at = _position(lexemes, error.token)
            _report(lexemes, at, set(error.accepts or error.expected), sink)
            rest = _without_statement(lexemes, at)
            if len(rest) == len(lexemes):
                break
            lexemes = rest
        except VisitError as error:
            if not isinstance(error.orig_exc, Misplaced):
                raise
            code, span, label, help = error.orig_exc.args
            sink.report(code, span, label, help)
            at = next((n for n, x in enumerate(lexemes) if x.span.start >= span.start), len(lexemes) - 1)
            rest = _without_statement(lexemes, at)
            if len(rest) == len(lexemes):
                break
            lexemes = rest
    return ast.Spec()


def _position(lexemes: list[Lexeme], token: Token) -> int:
    if token.type == "$END":
        return len(lexemes)
    return next((n for n, x in enumerate(lexemes) if x.span.start == token.start_pos and x.text == token), len(lexemes))


def _without_statement(lexemes: list[Lexeme], at: int) -> list[Lexeme]:
    """The tokens without the statement around `at`: from the newline or brace before it to the one behind, nested
    braces
    included."""
    at = min(at, len(lexemes) - 1)
    if at < 0:
        return lexemes
    start = at
    if lexemes[at].type == "RBRACE":
        previous = lexemes[at - 1].type if at else "NL"
        if previous in ("NL", "LBRACE", "RBRACE"):
            return lexemes[:at] + lexemes[at + 1 :]
        start = at - 1
    while start > 0 and lexemes[start - 1].type not in ("NL", "LBRACE", "RBRACE"):
        start -= 1
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


_SHOWN = {v: k for k, v in OPERATORS.items() if v != "NL"} | {
    "NAME": "a name", "CALLNAME": "a call", "NUMBER": "a number", "STRING": "a string", "_NL": "a new line",
    "$END": "the end", "_AUGMENT": "+=", "_BAR": "|", "_PIPE": ">>", "_RANGE": "..",
    "LBRACE": "{", "RBRACE": "}", "VBAR": "|",
}  # fmt: skip


def _words(expected: set[str]) -> str:
    """What could have stood here, in words."""
    starts = {"NAME", "CALLNAME", "NUMBER", "STRING", "LPAR", "LSQB", "MINUS", "NOT", "TRUE", "FALSE", "NONE"}
    shown = []
    if len(starts & expected) >= 6:
        shown.append("an expression")
        expected = expected - starts
    plain = sorted(expected, key=lambda t: (t.islower(), t))
    for type in plain:
        word = _SHOWN.get(type, type.lower())
        shown.append(word if word.startswith(("a ", "an ", "the ")) else f"`{word}`")
    shown = shown[:7]
    return " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else "the end"


def _report(lexemes: list[Lexeme], at: int, expected: set[str], sink: Sink) -> None:
    found = lexemes[at] if at < len(lexemes) else None
    last = lexemes[-1] if lexemes else None
    span = found.span if found else (last.span if last else Span("", 0, 0, 0, 0, 0, 0))
    before = lexemes[at - 1] if at else None
    wanted = _words(expected)
    if found is None:
        sink.report("HYB001", span, f"the text ends here; expected {wanted}", "close what is open")
        return
    what = "the line ends" if found.type == "NL" and found.text == "\n" else f"unexpected `{found.text}`"
    sink.report("HYB001", span, f"{what}; expected {wanted}", _remedy(found, before, lexemes, at, wanted))


def _remedy(found: Lexeme, before: Lexeme | None, lexemes: list[Lexeme], at: int, wanted: str) -> str:
    following = lexemes[at + 1] if at + 1 < len(lexemes) else None
    previous = before.text if before else ""
    if found.type == "EQUAL" and lexemes[max(at - 2, 0)].type == "LPAR" and at >= 3 and lexemes[at - 3].type == "NAME":
        return f"remove the space: `{lexemes[at - 3].text}(...)` is a call only without one"
    if found.text in KEYWORDS:
        return f"`{found.text}` is a word of the language; choose another name" if before else f"expected {wanted}"
    if found.type == "RBRACE" and (before is None or before.type in ("NL", "RBRACE")):
        return "remove this `}`: nothing is open"
    if found.type == "COLON":
        return "write `=` instead of `:`"
    if found.type == "PLUS" and previous == "=":
        return "write `+=`"
    if before and before.type in ("NAME", "CALLNAME") and found.type in ("NAME", "CALLNAME", "STRING", "NUMBER"):
        near = nearest(previous, KEYWORDS | {"layers", "embed", "head"})
        if near and near != previous:
            return f"did you mean `{near}`?"
    if found.type in ("NAME", "CALLNAME") and (before is None or before.type == "NL"):
        near = nearest(found.text, KEYWORDS)
        if near:
            return f"did you mean `{near}`?"
    if before is None and found.type in ("NAME", "CALLNAME"):
        return "a spec has `import`, `let`, `block`, `model`, `precision` and `mesh` at its top"
    if following is None and found.type == "NL":
        return "finish the statement"
    return f"expected {wanted}"
