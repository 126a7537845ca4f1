"""Spec text to tokens. What is no token is reported and, where it can be guessed, replaced by what was meant."""

from __future__ import annotations

import bisect
import itertools
import re
import unicodedata

from hybridc.diagnostics import Sink, Span
from hybridc.frontend.layout import MAX_ERRORS, layout
from hybridc.frontend.lexemes import Lexeme

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

MAX_LENGTH = 1 << 20

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+)|(?P<comment>\#[^\n]*)|(?P<newline>\n)"
    r"|(?P<number>[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<foreign>&&?|\|\||!(?!=)|->|'[^'\n]*')"
    r"|(?P<operator>\*\*|\.\.|>>|\+=|==|!=|<=|>=|//|[*+\-/%<>={}()\[\],:.|;])"
)

_FOREIGN = {"&": ("AND", "and"), "&&": ("AND", "and"), "||": ("OR", "or"), "!": ("NOT", "not"), "->": ("PIPE", ">>")}
"""Signs of other languages, and the token that is meant."""

REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)")
"""Control characters, line ends of other kinds, signs that reorder what is shown, and halves of characters: a text
could look different from what it means, in comments and strings too."""


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
    """The tokens and the comments of a text. Nothing comes back when there is too much of it or too much wrong."""
    lines = Lines(text, file)
    if len(text) > MAX_LENGTH:
        sink.report("HYB002", lines.span(0, 0), f"{len(text)} characters of text", "split the spec into imported files")
        return [], []
    scanner = _Scanner(text, lines)
    scanner.run()
    own = scanner.sink
    tokens = scanner.tokens
    if len(own.diagnostics) < MAX_ERRORS:
        tokens = layout(tokens, own, scanner.cut_lines)
    for d in own.diagnostics[:MAX_ERRORS]:
        sink.report(d.code, d.span, d.label, d.help)
    return (tokens, scanner.comments) if len(own.diagnostics) < MAX_ERRORS else ([], scanner.comments)


class _Scanner:
    """One walk over a text."""

    def __init__(self, text: str, lines: Lines) -> None:
        self.lines = lines
        self.sink = Sink()
        self.tokens: list[Lexeme] = []
        self.comments: list[Lexeme] = []
        self.cut_lines: set[int] = set()
        for match in itertools.islice(REFUSED.finditer(text), MAX_ERRORS):
            shown = f"U+{ord(match.group()):04X}"
            self.report(
                "HYB004", match.start(), match.end(), f"the character {shown} is not allowed in a spec", "remove it"
            )
        self.text = REFUSED.sub(" ", text)
        if text.startswith("\ufeff"):
            self.text = " " + self.text[1:]

    def report(self, code: str, start: int, end: int, label: str, help: str) -> None:
        self.sink.report(code, self.lines.span(start, end), label, help)

    def add(self, type: str, text: str, start: int, end: int) -> None:
        self.tokens.append(Lexeme(type, text, self.lines.span(start, end)))

    def run(self) -> None:
        text, at = self.text, 0
        while at < len(text) and len(self.sink.diagnostics) < MAX_ERRORS:
            match = _TOKEN.match(text, at)
            at = self.unknown(at) if match is None else self.known(match)

    def known(self, match: re.Match[str]) -> int:
        """Adds a token and returns where to go on."""
        text, (start, end) = self.text, match.span()
        kind, word = match.lastgroup, match.group()
        if kind == "comment":
            self.comments.append(Lexeme("COMMENT", word.rstrip(), self.lines.span(start, end)))
        elif kind == "newline":
            if not self.tokens or self.tokens[-1].text != "\n":
                self.add("NL", word, start, end)
        elif kind == "word":
            return self.word(start, end)
        elif kind == "number":
            return self.number(start, end)
        elif kind == "string":
            self.add("STRING", word, start, end)
        elif kind == "foreign":
            self.foreign(word, start, end)
        elif word == "." and text[end : end + 1].isdigit() and text[end].isascii() and self._starts_a_value():
            self.report("HYB001", start, end, "a number starts with a digit", "write `0.` for `.`")
        elif kind == "operator":
            self.add(OPERATORS[word], word, start, end)
        return end

    def _starts_a_value(self) -> bool:
        return not self.tokens or self.tokens[-1].type not in ("NAME", "CALLNAME", "RSQB", "STAR", "POWER", "NUMBER")

    def word(self, start: int, end: int) -> int:
        text = self.text
        if end < len(text) and not text[end].isascii() and _wordlike(text[end]):
            return self.lookalike(start, end)
        word = text[start:end]
        if word in KEYWORDS:
            type = word.upper()
        elif word == "inf":
            type = "NUMBER"
        else:
            type = "CALLNAME" if text.startswith("(", end) else "NAME"
        self.add(type, word, start, end)
        return end

    def lookalike(self, start: int, at: int) -> int:
        """A name from `start` with a letter at `at` that is not of ASCII."""
        text, end = self.text, at + 1
        while end < len(text) and _wordlike(text[end]):
            end += 1
        name = unicodedata.name(text[at], "a letter that has no name")
        self.report("HYB004", at, at + 1, f"`{text[at]}` is {name}, not an ASCII letter", "use A-Z, a-z, 0-9 and _")
        self.add("CALLNAME" if text.startswith("(", end) else "NAME", text[start:end], start, end)
        return end

    def number(self, start: int, end: int) -> int:
        text, stop = self.text, end
        while stop < len(text) and _wordlike(text[stop]):
            stop += 1
        if stop > end:
            help = "put a space or an operator between them; numbers look like 1, 4_096, 0.5 and 1e11"
            self.report("HYB001", start, stop, f"`{text[start:stop][:40]}` is a number that runs into a name", help)
        elif text.startswith(".", end) and not text.startswith("..", end):
            stop = end + 1
            self.report("HYB001", end, stop, "a number ends with a digit", f"write `{text[start:end][:40]}.0`")
        self.add("NUMBER", text[start:end], start, stop)
        return stop

    def foreign(self, word: str, start: int, end: int) -> None:
        if word[0] == "'":
            self.report("HYB003", start, end, "strings stand between double quotes", 'strings are written with "')
            self.add("STRING", '""', start, end)
            return
        type, meant = _FOREIGN[word]
        self.report("HYB004", start, end, f"`{word}` has no meaning here", f"write `{meant}`")
        self.add(type, meant, start, end)

    def unknown(self, at: int) -> int:
        """Reports what stands at `at`, which is no token, and returns where to go on."""
        text, character = self.text, self.text[at]
        if character == '"':
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            self.report("HYB003", at, end, "this string has no end on its line", 'close it with `"`')
            self.add("STRING", '""', at, end)
            self.cut_lines.add(self.tokens[-1].span.line)
            return end
        if _wordlike(character):
            return self.lookalike(at, at)
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        self.report("HYB004", at, at + 1, f"the character `{shown}` has no meaning here", "remove it")
        return at + 1


def _wordlike(character: str) -> bool:
    """Whether a reader would take the character for a part of a name."""
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] in "LMN"
