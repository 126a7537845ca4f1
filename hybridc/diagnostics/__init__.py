"""What hybridc says about a user's mistake: where it is, what is wrong, and how to mend it.

Every user mistake is a `Diagnostic` with a code from `hybridc.diagnostics.codes`. Stages report into a `Sink`, which
keeps going so that all mistakes of a file are shown in one run; `Sink.check` raises `DiagnosticError` at a stage
border.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of a source text. `start`/`end` are offsets; lines and columns count from 1."""

    file: str
    start: int
    end: int
    line: int
    col: int
    end_line: int
    end_col: int

    def to(self, other: Span) -> Span:
        """The range from the start of this span to the end of `other`."""
        return Span(self.file, self.start, other.end, self.line, self.col, other.end_line, other.end_col)


NO_SPAN = Span("", 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake. `label` says what is wrong at the place, `help` how to mend it; the title comes from the code."""

    code: str
    span: Span
    label: str
    help: str
    severity: Severity = "error"
    related: tuple[tuple[Span, str], ...] = ()

    @property
    def title(self) -> str:
        from hybridc.diagnostics.codes import CODES

        return CODES[self.code].title


class DiagnosticError(Exception):
    """Raised where a stage cannot go on; carries every diagnostic found so far."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: dict[str, str] | None = None) -> None:
        self.diagnostics = tuple(diagnostics)
        self.sources = dict(sources or {})
        super().__init__("\n".join(f"{d.code}: {d.label}" for d in self.diagnostics))

    def __str__(self) -> str:
        from hybridc.diagnostics.render import render_text

        return render_text(self.diagnostics, self.sources, color=False)


@dataclass
class Sink:
    """Collects diagnostics in the order of discovery, each (code, span, label) once; remembers the sources."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)

    def report(
        self,
        code: str,
        span: Span,
        label: str,
        help: str,
        *,
        severity: Severity = "error",
        related: tuple[tuple[Span, str], ...] = (),
    ) -> None:
        diagnostic = Diagnostic(code, span, label, help, severity, related)
        if not any((d.code, d.span, d.label) == (code, span, label) for d in self.diagnostics):
            self.diagnostics.append(diagnostic)

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.diagnostics if d.severity == "error"]

    def sort(self) -> None:
        """Puts diagnostics in the order of their places, file by file as the files were read; those without one come
        last."""
        order = {file: n for n, file in enumerate(self.sources)}
        self.diagnostics.sort(key=lambda d: (order.get(d.span.file, len(order)), d.span.start))

    def check(self) -> None:
        """Raise `DiagnosticError` if any error has been reported."""
        if self.errors:
            raise DiagnosticError(self.diagnostics, self.sources)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` was most likely meant to be, or None."""
    found = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A remedy for an unknown name: the nearest candidate, or the list of what there is."""
    options = sorted(set(candidates))
    if found := nearest(name, options):
        return f"did you mean `{found}`?"
    if not options:
        return "there is nothing to choose from here"
    shown = ", ".join(options[:12])
    return f"choose one of: {shown}" + (f" and {len(options) - 12} more" if len(options) > 12 else "")
