"""Where statements end: newlines that end none are dropped, and parentheses that a new statement shows to be open are
closed."""

from __future__ import annotations

import dataclasses

from hybridc.diagnostics import NO_SPAN, Sink
from hybridc.frontend.lexemes import Lexeme

MAX_ERRORS = 20
"""Errors of one text that are shown."""
MAX_DEPTH = 100
"""Brackets inside brackets."""

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

WORDS = frozenset(
    """
    IMPORT LET MODEL PARAM SHARED BLOCK PRECISION DEFAULT ON EXCEPT MESH IF ELSE FOR IN OR AND NOT TRUE FALSE NONE
    """.split()  # noqa: SIM905
)
_STARTS = frozenset(
    """
    IMPORT LET PARAM BLOCK SHARED MODEL PRECISION MESH RBRACE
    """.split()  # noqa: SIM905
)
_HEADS = ("MODEL", "BLOCK", "SHARED", "PRECISION", "MESH")
_CLOSERS = {"LPAR": ("RPAR", ")"), "LSQB": ("RSQB", "]")}
_OPENERS = ("LPAR", "LSQB", "LBRACE")
_END = Lexeme("", "", NO_SPAN)


def layout(tokens: list[Lexeme], sink: Sink, cut_lines: set[int]) -> list[Lexeme]:
    """The tokens that the parser reads. On `cut_lines` a broken string has taken the rest of the line with it, so a
    parenthesis that is open there is no mistake of its own."""
    return _Layout(tokens, sink, cut_lines).run()


class _Layout:
    """One walk over a text's tokens; `opened` are the brackets open at this point."""

    def __init__(self, tokens: list[Lexeme], sink: Sink, cut_lines: set[int]) -> None:
        self.tokens, self.sink, self.cut_lines = tokens, sink, cut_lines
        self.out: list[Lexeme] = []
        self.opened: list[Lexeme] = []
        self.following = [len(tokens)] * (len(tokens) + 1)
        for n in range(len(tokens) - 1, -1, -1):
            self.following[n] = self.following[n + 1] if tokens[n].type == "NL" else n

    def after(self, n: int, count: int = 1) -> Lexeme:
        """The `count`-th token behind `n` that is no newline."""
        for _ in range(count):
            n = self.following[min(n + 1, len(self.tokens))]
        return self.tokens[n] if n < len(self.tokens) else _END

    def run(self) -> list[Lexeme]:
        for n, token in enumerate(self.tokens):
            if len(self.sink.diagnostics) >= MAX_ERRORS:
                return []
            if token.type in _OPENERS:
                if token.type == "LBRACE":
                    # no expression has one
                    self.close(token)
                self.opened.append(token)
                if len(self.opened) > MAX_DEPTH:
                    label = f"more than {MAX_DEPTH} levels of nesting"
                    self.sink.report("HYB002", token.span, label, "name inner parts with lets")
                    return []
            elif token.type in ("RPAR", "RSQB", "RBRACE"):
                if token.type == "RBRACE":
                    self.close(token)
                if self.opened:
                    self.opened.pop()
            elif token.type in WORDS and self.is_name(n, token):
                token = dataclasses.replace(token, type="NAME")
            if token.type == "NL":
                if self.goes_on(n, token):
                    continue
                self.mend_header(n, token)
            self.out.append(token)
        if self.opened:
            end = self.tokens[-1]
            while self.opened:
                if self.opened[-1].type == "LBRACE":
                    self.sink.report(
                        "HYB001", self.opened.pop().span, "this `{` is never closed", "add the missing `}`"
                    )
                    self.out.append(Lexeme("RBRACE", "}", end.span))
                else:
                    self.close(end)
        return self.out

    def is_name(self, n: int, token: Lexeme) -> bool:
        """Whether a word of the language stands for itself: as an argument's name (`moe(shared=64)`) or in a selector
        (`**.shared.down`)."""
        following = self.after(n)
        if self.opened and self.opened[-1].type == "LPAR":
            return following.type == "EQUAL"
        if self.opened and self.opened[-1].type == "LSQB":
            return False
        before = self.out[-1].type if self.out else ""
        if before == "DOT" or following.type == "DOT":
            return True
        return before in ("ON", "EXCEPT", "COMMA") and token.type not in ("ON", "EXCEPT")

    def goes_on(self, n: int, token: Lexeme) -> bool:
        """Whether the statement goes on behind the newline `n`. A semicolon always ends it."""
        if token.text != "\n":
            return False
        begins = self.begins_statement(n)
        if self.opened and self.opened[-1].type != "LBRACE":
            if not begins:
                return True
            self.close(token)
        before = self.out[-1].type if self.out else ""
        if before == "NL":
            return True
        return (before in CONTINUES_AFTER and not begins) or self.after(n).type in CONTINUES_BEFORE

    def mend_header(self, n: int, token: Lexeme) -> None:
        """Reports and adds the brace that a line such as `block A` lacks: without it all that follows is wrong."""
        at = len(self.out)
        while at and self.out[at - 1].type not in ("NL", "LBRACE", "RBRACE"):
            at -= 1
        inside = bool(self.opened) and self.opened[-1].type != "LBRACE"
        if inside or at == len(self.out) or self.out[at].type not in _HEADS or self.after(n).type == "LBRACE":
            return
        self.sink.report("HYB001", token.span, "the line ends here; expected `{`", "write `{` here")
        brace = Lexeme("LBRACE", "{", token.span)
        self.out.append(brace)
        self.opened.append(brace)

    def begins_statement(self, n: int) -> bool:
        """Whether what stands behind the newline `n` can only be a new statement."""
        first, second = self.after(n), self.after(n, 2)
        before = self.out[-1].type if self.out else ""
        if first.type == "NAME" and second.type == "AUGMENT":
            return True
        if first.type in _STARTS or first.type == "NAME":
            # an argument may be named like a word of the language
            inside = bool(self.opened) and self.opened[-1].type == "LPAR" and before in ("COMMA", "LPAR")
            return (first.type in _STARTS and second.type != "EQUAL") or (second.type == "EQUAL" and not inside)
        return False

    def close(self, at: Lexeme) -> None:
        """Reports the parentheses open above the innermost brace and closes them."""
        while self.opened and self.opened[-1].type != "LBRACE":
            token = self.opened.pop()
            type, text = _CLOSERS[token.type]
            if token.span.line not in self.cut_lines:
                label = f"this `{token.text}` is never closed"
                self.sink.report("HYB001", token.span, label, f"add the missing `{text}`")
            self.out.append(Lexeme(type, text, at.span))
