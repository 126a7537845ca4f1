"""Diagnostics as text for a terminal, as JSON for editors, and the long form of a code."""

from __future__ import annotations

import json
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping

from hybridc.diagnostics import Diagnostic, Span, did_you_mean
from hybridc.diagnostics.codes import CODES

_COLORS = {
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "frame": "\x1b[1;34m",
    "help": "\x1b[1;32m",
    "bold": "\x1b[1m",
}
MAX_COLUMNS = 160
"""Longer source lines are cut around the place."""


Paint = Callable[[str, str], str]
"""A text and the name of its style to the text as it goes to the terminal."""


def render_text(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], *, color: bool = False) -> str:
    """All diagnostics, each with its line and a caret where the source is known, related places as notes, and a line
    that counts them."""

    def paint(text: str, style: str) -> str:
        return f"{_COLORS[style]}{text}\x1b[0m" if color else text

    parts = []
    counts = {"error": 0, "warning": 0}
    for d in diagnostics:
        counts[d.severity] += 1
        # one gutter for all lines of a diagnostic, wide enough for two digits
        width = max(2, *(len(str(span.line)) for span in (d.span, *(s for s, _ in d.related))))
        lines = [paint(f"{d.severity}[{d.code}]", d.severity) + paint(f": {d.title}", "bold")]
        lines += _snippet(d.span, _plain(d.label), "^", d.severity, width, sources, paint)
        lines.append(f"{' ' * width} {paint('=', 'frame')} {paint('help', 'help')}: {_plain(d.help)}")
        for span, label in d.related:
            lines.append(paint("note", "frame") + paint(f": {_plain(label)}", "bold"))
            lines += _snippet(span, "", "-", "frame", width, sources, paint)
        parts.append("\n".join(line.rstrip() for line in lines))
    shown = [f"{n} {word}{'' if n == 1 else 's'}" for word, n in counts.items() if n]
    return "\n\n".join([*parts, ", ".join(shown)]) + "\n" if parts else ""


def _plain(text: str) -> str:
    """One line without anything that a terminal would obey: names and strings of a spec may hold all sorts."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def _snippet(
    span: Span, label: str, mark: str, style: str, width: int, sources: Mapping[str, str], paint: Paint
) -> list[str]:
    """The place, the line and the carets below it; just the label where there is no source."""
    bar = paint("|", "frame")
    pad = " " * width
    alone = [f"{pad} {paint('=', 'frame')} {label}"] if label else []
    if not span.file:
        return alone
    head = f"{pad}{paint('-->', 'frame')} {_plain(span.file)}:{span.line}:{span.col}"
    text = sources.get(span.file)
    lines = text.split("\n") if text is not None else []
    if not 1 <= span.line <= len(lines):
        return [head, *alone]
    line = lines[span.line - 1].rstrip("\r")
    start = span.col - 1
    end = span.end_col - 1 if span.end_line == span.line else len(line)
    end = min(max(end, start + 1), max(len(line), start + 1))
    shift = 0
    if len(line) > MAX_COLUMNS:
        shift = max(0, start - MAX_COLUMNS // 3)
        line = line[shift : shift + MAX_COLUMNS]
        start, end = start - shift, min(end - shift, max(len(line), start - shift + 1))
    before, marked = columns(line[:start]), max(1, columns(line[start:end]))
    shown = "".join(c if c.isprintable() else "    " if c == "\t" else "?" for c in line)
    # a span that takes in the newline ends at the start of the next line
    several = span.end_line > span.line + (span.end_col == 1)
    number = paint(str(span.line).rjust(width), "frame")
    more = f" (to line {span.end_line})" if several else ""
    return [
        head,
        f"{pad} {bar}",
        f"{number} {bar} {shown}",
        f"{pad} {bar} {' ' * before}{paint(mark * marked, style)} {label}{more}",
    ]


def columns(text: str) -> int:
    """How many terminal columns a text takes."""
    return sum(map(_column, text))


def _column(character: str) -> int:
    """Tabs take four columns, wide characters two and combining ones none."""
    if character == "\t":
        return 4
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _place(span: Span) -> dict[str, object] | None:
    if not span.file:
        return None
    return {
        "file": span.file,
        "start": {"line": span.line, "column": span.col, "offset": span.start},
        "end": {"line": span.end_line, "column": span.end_col, "offset": span.end},
    }


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """A JSON list with code, severity, title, label, help, span and related spans of each."""
    return json.dumps(
        [
            {
                "code": d.code,
                "severity": d.severity,
                "title": d.title,
                "message": d.label,
                "help": d.help,
                "span": _place(d.span),
                "related": [{"span": _place(s), "message": label} for s, label in d.related],
            }
            for d in diagnostics
        ],
        indent=2,
    )


def explain(code: str) -> str:
    """The long form of a code. Raises KeyError, with the nearest code in its message, for one that does not exist."""
    wanted = code.upper()
    if wanted not in CODES:
        raise KeyError(f"there is no code `{code}`; {did_you_mean(wanted, CODES)}")
    entry = CODES[wanted]
    parts = [f"{wanted}: {entry.title}", textwrap.fill(entry.explanation, 88)]
    if entry.example:
        parts.append("For example:\n\n" + textwrap.indent(entry.example, "    "))
    return "\n\n".join(parts) + "\n"
