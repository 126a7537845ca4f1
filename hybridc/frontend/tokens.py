"""Spec text to tokens. Newlines end statements, except inside parentheses and where a line plainly goes on."""

from __future__ import annotations

import bisect
import re
import unicodedata
from dataclasses import dataclass

from hybridc.diagnostics import NO_SPAN, Sink, Span

KEYWORDS = frozenset(
    """
    import let model param shared block precision default on except mesh if else for in or and not true false none
    """.split()  # noqa: SIM905
)
OPERATORS = {
    "**": "POWER", "..": "RANGE", ">>": "PIPE", "+=": "AUGMENT", "==": "EQ", "!=": "NE", "<=": "LE", ">=": "GE",
    "//": "FLOOR", "*": "STAR", "+": "PLUS", "-": "MINUS", "/": "SLASH", "%": "PERCENT", "<": "LT", ">": "GT",
    "=": "EQUAL", "{": "LBRACE", "}": "RBRACE", "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", ",": "COMMA",
    ":": "COLON", ".": "DOT", "|": "BAR", ";": "NL",
}  # fmt: skip
CONTINUES_AFTER = frozenset(
    """
    PIPE BAR PLUS MINUS SLASH FLOOR PERCENT EQ NE LE GE LT GT EQUAL AUGMENT COMMA RANGE COLON OR AND NOT IF ELSE
    """.split()  # noqa: SIM905
)
"""A newline behind one of these does not end the statement."""
CONTINUES_BEFORE = frozenset(
    """
    PIPE BAR PLUS MINUS SLASH FLOOR PERCENT EQ NE LE GE LT GT RANGE OR AND IF ELSE ON EXCEPT
    """.split()  # noqa: SIM905
)
"""Nor does one in front of these."""

MAX_LENGTH = 1 << 20
MAX_DEPTH = 100

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+)|(?P<comment>\#[^\n]*)|(?P<newline>\n)"
    r"|(?P<number>\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<operator>\*\*|\.\.|>>|\+=|==|!=|<=|>=|//|[*+\-/%<>={}()\[\],:.|;])"
)


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A token: its type as in the grammar, its text and its place."""

    type: str
    text: str
    span: Span


class Lines:
    """Offsets of a text to lines and columns."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def span(self, start: int, end: int) -> Span:
        first = bisect.bisect_right(self.starts, start) - 1
        last = bisect.bisect_right(self.starts, end) - 1
        return Span(
            self.file, start, end, first + 1, start - self.starts[first] + 1, last + 1, end - self.starts[last] + 1
        )


def tokenize(text: str, file: str, sink: Sink) -> tuple[list[Lexeme], list[Lexeme]]:
    """The tokens and the comments of a text; what is no token is reported and left out."""
    lines = Lines(text, file)
    if len(text) > MAX_LENGTH:
        sink.report("HYB002", lines.span(0, 0), f"{len(text)} characters of text", "split the spec into imported files")
        return [], []
    tokens: list[Lexeme] = []
    comments: list[Lexeme] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            at = _bad_character(text, at, lines, sink)
            continue
        start, at = at, match.end()
        kind = match.lastgroup or ""
        if kind == "blank":
            continue
        span = lines.span(start, at)
        word = match.group()
        if kind == "comment":
            comments.append(Lexeme("COMMENT", word.rstrip(), span))
        elif kind == "newline":
            tokens.append(Lexeme("NL", word, span))
        elif kind == "word":
            tokens.append(Lexeme(_word_type(word, text, at), word, span))
        elif kind == "operator":
            tokens.append(Lexeme(OPERATORS[word], word, span))
        else:
            tokens.append(Lexeme(kind.upper(), word, span))
    return _layout(tokens, sink), comments


def _word_type(word: str, text: str, end: int) -> str:
    if word in KEYWORDS:
        return word.upper()
    if word == "inf":
        return "NUMBER"
    return "CALLNAME" if text.startswith("(", end) else "NAME"


def _bad_character(text: str, at: int, lines: Lines, sink: Sink) -> int:
    """Reports what stands at `at` and returns where to go on."""
    character = text[at]
    if character == '"':
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        sink.report("HYB003", lines.span(at, end), "this string has no end on its line", 'close it with `"`')
        return end
    end = at + 1
    if character.isalpha() or unicodedata.category(character)[0] in "LMN":
        while end < len(text) and (text[end].isalnum() or text[end] == "_"):
            end += 1
        name = unicodedata.name(character, "a letter that has no name")
        sink.report(
            "HYB004", lines.span(at, end), f"`{character}` is {name}, not an ASCII letter", "use A-Z, a-z, 0-9 and _"
        )
        return end
    help = {
        "'": 'strings are written with "',
        "&": "write `and`",
        "!": "write `not`",
        "@": "remove it",
        "$": "remove it",
        "^": "remove it",
    }.get(character, "remove it")
    if character in "&" and text.startswith("&&", at):
        end = at + 2
    shown = repr(character)[1:-1] if not character.isprintable() else text[at:end]
    sink.report("HYB004", lines.span(at, end), f"the character `{shown}` has no meaning here", help)
    return end


def _layout(tokens: list[Lexeme], sink: Sink) -> list[Lexeme]:
    """Drops newlines that end nothing, limits nesting, and closes parentheses that a new statement shows to be open."""
    out: list[Lexeme] = []
    opened: list[Lexeme] = []
    operators = 0
    for n, token in enumerate(tokens):
        if token.type in ("LPAR", "LSQB", "LBRACE"):
            opened.append(token)
            if len(opened) > MAX_DEPTH:
                sink.report(
                    "HYB002", token.span, f"more than {MAX_DEPTH} levels of nesting", "name inner parts with lets"
                )
                return []
        elif token.type in ("RPAR", "RSQB", "RBRACE"):
            if token.type == "RBRACE":
                _close(opened, out, token, sink)
            if opened:
                opened.pop()
        elif opened and opened[-1].type == "LPAR" and token.text in KEYWORDS and _next(tokens, n, 1).type == "EQUAL":
            # an argument may be named like a word of the language: moe(shared=64)
            token = Lexeme("NAME", token.text, token.span)
        elif token.type in _NESTING:
            operators += 1
            if operators == MAX_OPERATORS:
                label = f"more than {MAX_OPERATORS} operators in one statement"
                sink.report("HYB002", token.span, label, "name inner parts with lets")
                return []
        if token.type == "NL":
            if opened and opened[-1].type != "LBRACE" and token.text == "\n":
                if not _starts_statement(tokens, n, out):
                    continue
                _close(opened, out, token, sink)
            if token.text == "\n":
                if out and (out[-1].type in CONTINUES_AFTER or out[-1].type == "NL"):
                    continue
                if out and _next(tokens, n, 1).type in CONTINUES_BEFORE:
                    continue
            operators = 0
        out.append(token)
    if opened:
        end = tokens[-1]
        for token in reversed(opened):
            if token.type == "LBRACE":
                sink.report("HYB001", token.span, "this `{` is never closed", "add the missing `}`")
                out.append(Lexeme("RBRACE", "}", end.span))
            else:
                _close(opened, out, end, sink)
    return out


_NESTING = frozenset(
    """
    PLUS MINUS STAR SLASH FLOOR PERCENT OR AND NOT IF COLON
    """.split()  # noqa: SIM905
)
MAX_OPERATORS = 200
_CLOSERS = {"LPAR": ("RPAR", ")"), "LSQB": ("RSQB", "]")}
_STARTS = frozenset(
    """
    IMPORT LET PARAM BLOCK SHARED MODEL PRECISION MESH RBRACE
    """.split()  # noqa: SIM905
)


def _starts_statement(tokens: list[Lexeme], n: int, before: list[Lexeme]) -> bool:
    """Whether a statement begins behind the newline `n`, although a parenthesis is open."""
    first, second = _next(tokens, n, 1), _next(tokens, n, 2)
    if first.type in _STARTS or (first.type == "NAME" and second.type == "AUGMENT"):
        return True
    return first.type == "NAME" and second.type == "EQUAL" and before[-1].type not in ("COMMA", "LPAR", "LSQB")


def _close(opened: list[Lexeme], out: list[Lexeme], at: Lexeme, sink: Sink) -> None:
    """Reports the parentheses open above the innermost brace and closes them."""
    while opened and opened[-1].type != "LBRACE":
        token = opened.pop()
        type, text = _CLOSERS[token.type]
        sink.report("HYB001", token.span, f"this `{token.text}` is never closed", f"add the missing `{text}`")
        out.append(Lexeme(type, text, at.span))


_END = Lexeme("", "", NO_SPAN)


def _next(tokens: list[Lexeme], n: int, count: int) -> Lexeme:
    """The `count`-th token behind `n` that is no newline."""
    for token in tokens[n + 1 :]:
        if token.type != "NL":
            count -= 1
            if not count:
                return token
    return _END
