"""What the commands share: printing, exit statuses, reading command-line values, files written all or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from hybridc.diagnostics import Diagnostic, DiagnosticError, Sink

if TYPE_CHECKING:
    from rich.console import Console

FINE, SPEC_WRONG, COMMAND_WRONG, ENVIRONMENT_LACKS, INTERNAL = 0, 1, 2, 3, 70
"""Exit statuses. 130 is Ctrl-C."""

COMMAND_CODES = frozenset(
    {
        "HYB101",
        "HYB218",
        "HYB219",
        "HYB400",
        "HYB403",
        "HYB500",
        "HYB520",
        "HYB601",
        "HYB602",
        "HYB605",
        "HYB608",
        "HYB613",
    }
)
"""Codes that are about the command line when they have no place in a file; so is all that is wrong in --mesh."""
ENVIRONMENT_CODES = frozenset({"HYB404", "HYB604"})
"""Codes about what the machine lacks."""


class Stop(Exception):
    """Ends the command with `status` after `message` on standard error."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


def wrong(message: str) -> NoReturn:
    """Ends the command: the command line is wrong."""
    raise Stop(COMMAND_WRONG, message)


def note(message: str) -> None:
    """Says on standard error what a person may not expect, and goes on."""
    write(f"note: {message}\n", sys.stderr)


def write(text: str, stream: TextIO | None = None) -> None:
    """Prints `text` as it is. A reader that has gone away (`| head`) is no mistake: the rest is dropped."""
    target = stream or sys.stdout
    if target is None:  # closed by the caller: nobody reads
        return
    try:
        target.write(text)
        target.flush()
    except BrokenPipeError:
        silence(target)
    except OSError as error:
        silence(target)
        if target is sys.stdout:
            raise Stop(ENVIRONMENT_LACKS, f"cannot write to standard output: {error.strerror or error}") from error


def silence(stream: TextIO) -> None:
    """Sends what is still to come for `stream` nowhere, so that closing it at exit cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def color(stream: TextIO) -> bool:
    """Whether to use colours: a terminal without NO_COLOR, or FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def width(stream: TextIO) -> int:
    """Columns to fill: the terminal's, or 120 for a file or pipe."""
    import shutil

    return shutil.get_terminal_size((120, 24)).columns if stream.isatty() else 120


def canvas(width: int, color: bool) -> tuple[Console, io.StringIO]:
    """A rich console that draws into a text, at least 60 columns wide."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, 60),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        legacy_windows=False,
    )
    return console, out


def show(diagnostics: Sequence[Diagnostic], sources: dict[str, str], stream: TextIO | None = None) -> None:
    """Prints diagnostics as text, to standard error unless told otherwise."""
    from hybridc.diagnostics.render import render_text

    target = stream or sys.stderr
    write(render_text(diagnostics, sources, color=color(target)), target)


def status(diagnostics: Iterable[Diagnostic]) -> int:
    """The exit status that diagnostics mean: 3 before 2 before 1; warnings mean nothing."""
    found = FINE
    for d in diagnostics:
        if d.severity != "error":
            continue
        if d.code in ENVIRONMENT_CODES:
            found = max(found, ENVIRONMENT_LACKS)
        elif d.span.file == "<mesh>" or (not d.span.file and d.code in COMMAND_CODES):
            found = max(found, COMMAND_WRONG)
        else:
            found = max(found, SPEC_WRONG)
    return found


def report(sinks: Sequence[Sink], format: str, fine: Sequence[str]) -> NoReturn:
    """Prints what `check` found, as text (`fine[i]` where sink i has nothing to say) or JSON, and ends the command."""
    everything = [d for sink in sinks for d in sink.diagnostics]
    if format == "json":
        from hybridc.diagnostics.render import render_json

        write(render_json(everything) + "\n")
    else:
        for sink, word in zip(sinks, fine, strict=True):
            show(sink.diagnostics, sink.sources, sys.stdout)
            if not sink.errors:
                write(f"{word}\n")
    raise Stop(status(everything))


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """`["dim=64", "depth=2"]` as a dict. Ends the command where a word is no `name=value` or a name comes twice."""
    out: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or not value:
            wrong(f"{option} takes name=value, got `{word}`")
        if name in out:
            wrong(f"{option} gives `{name}` twice")
        out[name] = value
    return out


def split(text: str) -> list[str]:
    """`tp=2,ep=hybrid(node=2, local=4)` cut at the commas that stand in no parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [p.strip() for p in parts if p.strip()]


def read_text(path: str) -> str:
    """A file's text, or standard input's for `-`. Ends the command where it cannot be read."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        wrong(f"cannot read {path}: {error.strerror or error}")
    except UnicodeDecodeError as error:
        wrong(f"cannot read {path}: it is not UTF-8 text (byte {error.start})")


def read_times(path: Path | None) -> dict[str, float] | None:
    """The numbers by name of a JSON file. Ends the command where it is none."""
    if path is None:
        return None
    try:
        times = json.loads(read_text(str(path)))
    except json.JSONDecodeError as error:
        wrong(f"{path} is not JSON: {error}")
    if not isinstance(times, dict):
        wrong(f'{path} has no numbers by name: write for example {{"embed": 0.1, "A": 1.5, "head": 2}}')
    return times


def write_file(path: Path, text: str) -> None:
    """Replaces a file's text all at once; a link stays a link, and the file's mode stays. Ends the command where it
    cannot."""
    target = Path(os.path.realpath(path))
    beside = ""
    try:
        if target.is_dir():
            wrong(f"cannot write {path}: it is a folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside, target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~umask)
        os.replace(beside, target)
        beside = ""
    except OSError as error:
        raise Stop(ENVIRONMENT_LACKS, f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if beside:
            with contextlib.suppress(OSError):
                os.unlink(beside)


def finish(error: BaseException) -> int:
    """Says what ended a command and returns its exit status. Only a mistake of ours is called internal."""
    if isinstance(error, Stop):
        if str(error):
            write(f"hybridc: {error}\n", sys.stderr)
        return error.status
    if isinstance(error, DiagnosticError):
        show(error.diagnostics, error.sources)
        return status(error.diagnostics) or SPEC_WRONG
    if isinstance(error, KeyboardInterrupt):
        return 130
    if type(error).__name__ == "UsageError" and isinstance(error, ValueError):
        # the runtime's, which is not imported here: most commands do without it
        write(f"hybridc: {error}\n", sys.stderr)
        return COMMAND_WRONG
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "hybridc":
        package = (error.name or "").partition(".")[0]
        write(f"hybridc: this needs {package}: python -m pip install {package} (see `hybridc doctor`)\n", sys.stderr)
        return ENVIRONMENT_LACKS
    if os.environ.get("HYBRIDC_DEBUG") == "1":
        import traceback

        write("".join(traceback.format_exception(error)), sys.stderr)
    said = json.dumps(f"{type(error).__name__}: {error}"[:300], ensure_ascii=False)
    write(
        f"hybridc: internal error, please report it with the spec: {said} (HYBRIDC_DEBUG=1 shows where)\n", sys.stderr
    )
    return INTERNAL
