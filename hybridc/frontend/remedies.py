"""Syntax errors in words: what was expected, and how to mend the common slips."""

from __future__ import annotations

from collections.abc import Sequence

from hybridc.diagnostics import Sink, Span, nearest
from hybridc.frontend.lexemes import Lexeme
from hybridc.frontend.tokens import KEYWORDS, OPERATORS

_SHOWN = {v: f"`{k}`" for k, v in OPERATORS.items() if v != "NL"} | {
    "NAME": "a name", "CALLNAME": "a call", "NUMBER": "a number", "STRING": "a string", "_NL": "a new line",
    "$END": "the end of the file", "_AUGMENT": "`+=`", "_BAR": "`|`", "_PIPE": "`>>`", "_RANGE": "`..`", "VBAR": "`|`",
}  # fmt: skip
_STARTS = frozenset(("NAME", "CALLNAME", "NUMBER", "STRING", "LPAR", "LSQB", "MINUS", "NOT", "TRUE", "FALSE", "NONE"))
_OPERATORS = frozenset(
    """
    PLUS MINUS STAR SLASH FLOOR PERCENT EQ NE LE GE LT GT AND OR IF _BAR _PIPE _RANGE COLON
    """.split()  # noqa: SIM905
)
_FIRST = ("RPAR", "RSQB", "RBRACE", "LBRACE", "COMMA", "EQUAL")
"""What most often lacks is named first."""


def words(expected: set[str]) -> str:
    """What could have stood here: "`)`, `,` or an operator"."""
    shown = []
    rest = set(expected)
    behind = len(_OPERATORS & rest) >= 4
    if behind:
        # behind a whole expression: another one would be a sequence, which is seldom meant
        rest -= _OPERATORS | _STARTS
    elif len(_STARTS & rest) >= 6:
        shown.append("an expression")
        rest -= _STARTS | {"COLON"}
    if "_NL" in rest:
        rest.discard("$END")
    if len(rest) > 3:
        rest.discard("_NL")
    first = [type for type in _FIRST if type in rest]
    shown += [_word(type) for type in [*first, *sorted(rest - set(first))]]
    if behind:
        shown.append("an operator")
    return " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else "nothing more"


def _word(type: str) -> str:
    return _SHOWN.get(type, f"`{type.lower()}`")


def report(lexemes: Sequence[Lexeme], at: int, expected: set[str], file: str, sink: Sink) -> None:
    """Reports the token at `at`, where one of `expected` should be; `at` may lie behind the last."""
    found = lexemes[at] if at < len(lexemes) else None
    wanted = words(expected)
    if found is None:
        span = lexemes[-1].span if lexemes else Span(file, 0, 0, 1, 1, 1, 1)
        sink.report("HYB001", span, f"the text ends here; expected {wanted}", "finish the statement")
        return
    what = "the line ends here" if found.text == "\n" else f"unexpected `{_short(found.text)}`"
    sink.report("HYB001", found.span, f"{what}; expected {wanted}", _remedy(found, lexemes, at, expected))


_PAIRS = {"RPAR": "LPAR", "RSQB": "LSQB"}


def _opener(lexemes: Sequence[Lexeme], at: int) -> Lexeme | None:
    """The bracket open in front of the token at `at`."""
    closed = 0
    for token in reversed(lexemes[:at]):
        if token.type in _PAIRS:
            closed += 1
        elif token.type in _PAIRS.values():
            if not closed:
                return token
            closed -= 1
        elif token.type in ("LBRACE", "RBRACE", "NL"):
            return None
    return None


def is_stray(lexemes: Sequence[Lexeme], at: int) -> bool:
    """Whether the token at `at` closes a bracket that its statement has not opened."""
    return at < len(lexemes) and lexemes[at].type in _PAIRS and _opener(lexemes, at) is None


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _remedy(found: Lexeme, lexemes: Sequence[Lexeme], at: int, expected: set[str]) -> str:
    def token(offset: int) -> Lexeme | None:
        return lexemes[at + offset] if 0 <= at + offset < len(lexemes) else None

    before, following = token(-1), token(1)
    starts = before is None or before.type in ("NL", "LBRACE", "RBRACE")
    named = found.type in ("NAME", "CALLNAME")
    opening, head = token(-2), token(-3)
    if found.type == "EQUAL" and opening and opening.type == "LPAR" and head and head.type == "NAME":
        return f"remove the space: `{_short(head.text)}(...)` is a call only without one"
    if found.type == "RBRACE" and starts and "RBRACE" not in expected:
        return "remove this `}`: nothing is open"
    if found.type in _PAIRS:
        opener = _opener(lexemes, at)
        if opener is None:
            return f"remove this `{found.text}`: nothing is open"
        if opener.type != _PAIRS[found.type]:
            return f"close `{opener.text}` first"
    if "ON" in expected:
        return "a rule is written FORMAT on SELECTORS except SELECTORS"
    if starts and named and following:
        near = nearest(found.text, [word for word in KEYWORDS if word.upper() in expected])
        if near:
            return f"did you mean `{near}`?"
        if following.type == "LBRACE" and "MODEL" in expected:
            return f"write `model {_short(found.text)} {{`"
    if before and before.type in ("NAME", "CALLNAME") and named:
        near = nearest(before.text, [w for w in KEYWORDS if w not in ("if", "for", "in", "on", "or", "and")])
        if near and "EQUAL" in expected:
            return f"did you mean `{near}`?"
    if starts and "MODEL" in expected:
        return "at its top a spec has `import`, `let`, `block`, `model`, `precision` and `mesh`"
    if found.type == "EQUAL" and before and before.type == "MINUS":
        return "write `x = ... - ...`: only `+=` adds to a value"
    if found.text == "\n":
        return f"write {words(expected & set(_FIRST))} here" if expected & set(_FIRST) else "finish the statement"
    if found.type in ("COLON", "EQ") and "EQUAL" in expected:
        return f"write `=` instead of `{found.text}`"
    if found.type == "PLUS" and before and before.type == "EQUAL":
        return "write `+=`"
    if found.type == "POWER":
        return "there are no powers; write the product out"
    if found.text in KEYWORDS and "NAME" in expected and not expected & _OPERATORS - {"MINUS"}:
        return f"`{found.text}` is a word of the language; choose another name"
    if len(expected) == 1 and not named:
        return f"write {words(expected)} here"
    return f"remove `{_short(found.text)}`, or write {words(expected)} in front of it"
